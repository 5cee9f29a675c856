//! TLS with a certificate from files.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::server::ServeError;

/// The files of a certificate.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate chain in PEM.
    pub cert: PathBuf,
    /// The private key in PEM.
    pub key: PathBuf,
}

pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, ServeError> {
    let failed =
        |what: &PathBuf, err: String| ServeError::Tls(format!("{}: {err}", what.display()));
    let certs: Vec<_> = CertificateDer::pem_file_iter(&files.cert)
        .and_then(Iterator::collect)
        .map_err(|err| failed(&files.cert, err.to_string()))?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|err| failed(&files.key, err.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let unusable = |err: rustls::Error| failed(&files.cert, err.to_string());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(certs, key)
        .map_err(unusable)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
