//! TLS for the HTTP client: rustls with `ring`, the root certificates of the operating system, and an optional extra
//! CA. The certificate store is read at the first handshake, so that runs against a local server do not pay for it.
//! This module reads no environment variables and installs nothing process-wide.

use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use rustls_platform_verifier::Verifier;

/// Returns the client configuration: HTTP/1.1, no client certificate, verification by [`LazyVerifier`].
pub(crate) fn client_config(
    extra_roots: Vec<CertificateDer<'static>>,
) -> Result<ClientConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = LazyVerifier {
        provider: provider.clone(),
        extra_roots,
        inner: OnceLock::new(),
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous() // required for a custom verifier; `LazyVerifier` delegates to the platform's verifier
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Parses the certificates of a PEM file.
pub(crate) fn parse_roots(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let roots = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|err| format!("not a PEM file: {err}"))?;
    if roots.is_empty() {
        return Err(
            "it contains no certificate (expected `-----BEGIN CERTIFICATE-----`)".to_owned(),
        );
    }
    let mut store = rustls::RootCertStore::empty();
    for root in &roots {
        store
            .add(root.clone())
            .map_err(|err| format!("a certificate in it cannot be used: {err}"))?;
    }
    Ok(roots)
}

/// The platform's verifier, created when the first certificate is verified.
#[derive(Debug)]
struct LazyVerifier {
    provider: Arc<CryptoProvider>,
    extra_roots: Vec<CertificateDer<'static>>,
    inner: OnceLock<Result<Verifier, Error>>,
}

impl LazyVerifier {
    fn inner(&self) -> Result<&Verifier, Error> {
        // Reading the store takes a few milliseconds once, during a handshake that waits for the network anyway.
        let build = || {
            Verifier::new_with_extra_roots(self.extra_roots.iter().cloned(), self.provider.clone())
        };
        self.inner.get_or_init(build).as_ref().map_err(Clone::clone)
    }
}

impl ServerCertVerifier for LazyVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.inner()?
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    // Signatures and schemes depend only on the crypto provider, so these three functions do not read the store.
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_store_is_not_read_before_the_first_verification() {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = LazyVerifier {
            provider,
            extra_roots: Vec::new(),
            inner: OnceLock::new(),
        };
        assert!(!verifier.supported_verify_schemes().is_empty());
        assert!(verifier.inner.get().is_none());
    }

    #[test]
    fn the_certificates_of_a_ca_file_are_found_among_other_text() {
        let pem = include_str!("../tests/test-root.pem");
        let both = format!("# a root certificate\n{pem}\n{pem}");
        assert_eq!(parse_roots(both.as_bytes()).unwrap().len(), 2);
    }

    #[test]
    fn a_bad_ca_file_is_refused_with_a_reason() {
        assert!(parse_roots(b"").unwrap_err().contains("no certificate"));
        assert!(
            parse_roots(b"-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n").is_err()
        );
        let nonsense = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(
            parse_roots(nonsense)
                .unwrap_err()
                .contains("cannot be used")
        );
    }
}
