//! Tests the HTTP client against a loopback server that misbehaves.
#![allow(clippy::unwrap_used)]

use std::io::Write;

use super::*;
use crate::loopback::{Act, Server, chunk, stream_head, whole};
use windlass_core::provider::{ProviderError, ProviderErrorKind};

fn http(change: impl FnOnce(&mut HttpOptions)) -> Http {
    let mut options = HttpOptions::default();
    change(&mut options);
    Http::new(&options).unwrap()
}

async fn read(mut body: HttpBody) -> Result<Vec<u8>, HttpError> {
    let mut all = Vec::new();
    while let Some(piece) = poll_fn(|cx| body.poll_piece(cx)).await {
        all.extend_from_slice(&piece?);
    }
    Ok(all)
}

async fn exchange(http: &Http, url: &str) -> Result<(u16, Vec<u8>), HttpError> {
    let mut headers = HeaderMap::new();
    headers.insert("x-api-key", "secret-key".parse().unwrap());
    let response = http
        .send(
            &Url::parse(url).unwrap(),
            headers,
            Some(Bytes::from_static(b"body")),
        )
        .await?;
    Ok((response.status, read(response.body).await?))
}

#[tokio::test]
async fn the_connection_is_reused() {
    let server = Server::saying(vec![whole(200, "", "ok")]).unwrap();
    let http = http(|_| ());
    for _ in 0..3 {
        assert_eq!(
            exchange(&http, &server.url).await.unwrap(),
            (200, b"ok".to_vec())
        );
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_redirect_on_the_same_host_repeats_the_request_at_most_three_times() {
    let server = Server::start(|number, _| match number {
        0..3 => vec![whole(308, &format!("location: /hop{number}\r\n"), "")],
        _ => vec![whole(200, "", "there")],
    })
    .unwrap();
    assert_eq!(
        exchange(&http(|_| ()), &server.url).await.unwrap(),
        (200, b"there".to_vec())
    );
    assert!(
        server
            .requests()
            .iter()
            .all(|text| text.starts_with("POST") && text.ends_with("body"))
    );

    let looping = Server::saying(vec![whole(307, "location: /again\r\n", "")]).unwrap();
    let err = exchange(&http(|_| ()), &looping.url).await.unwrap_err();
    assert!(err.to_string().contains("more than 3 times"), "{err}");
    assert_eq!(looping.requests().len(), 4);
}

#[tokio::test]
async fn a_redirect_to_another_host_is_refused_and_nothing_is_sent_there() {
    let other = Server::saying(vec![whole(200, "", "stolen")]).unwrap();
    let location = format!(
        "location: {}/x\r\n",
        other.url.replace("127.0.0.1", "localhost")
    );
    let server = Server::saying(vec![whole(307, &location, "")]).unwrap();
    let err = exchange(&http(|_| ()), &server.url).await.unwrap_err();
    assert!(
        err.kind == HttpErrorKind::Redirect && err.message.contains("another host (localhost"),
        "{err}"
    );
    // Another port of the same name is another server.
    let location = format!("location: {}/x\r\n", other.url);
    let server = Server::saying(vec![whole(302, &location, "")]).unwrap();
    assert_eq!(
        exchange(&http(|_| ()), &server.url).await.unwrap_err().kind,
        HttpErrorKind::Redirect
    );
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn a_download_follows_to_another_host_but_not_out_of_tls() {
    let other = Server::saying(vec![whole(200, "", "the file")]).unwrap();
    let location = format!(
        "location: {}/x\r\n",
        other.url.replace("127.0.0.1", "localhost")
    );
    let server = Server::saying(vec![whole(302, &location, "")]).unwrap();
    let url = Url::parse(&server.url).unwrap();
    let answer = http(|_| ()).download(&url).await.unwrap();
    assert_eq!(answer.body.read_up_to(100).await, b"the file");
    let request = other.requests().join("").to_lowercase();
    assert!(request.contains("accept-encoding: identity"), "{request}");
    let hop = |from: &str, to: &str| {
        next_url(RedirectPolicy::AnyHost, &Url::parse(from).unwrap(), to).map(|url| url.to_string())
    };
    assert!(hop("https://a/x", "https://b/y").is_ok());
    assert!(hop("https://a/x", "http://b/y").is_err());
    assert!(hop("https://a/x", "file:///etc/passwd").is_err());
}

#[tokio::test]
async fn a_redirect_that_would_lose_the_body_or_leads_nowhere_is_refused() {
    for (status, headers) in [
        (303, "location: /x\r\n"),
        (307, ""),
        (307, "location: http://[\r\n"),
    ] {
        let server = Server::saying(vec![whole(status, headers, "")]).unwrap();
        assert_eq!(
            exchange(&http(|_| ()), &server.url).await.unwrap_err().kind,
            HttpErrorKind::Redirect
        );
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn gzip_is_decoded_and_a_bomb_is_stopped() {
    let pack = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let server =
        Server::saying(vec![whole(200, "content-encoding: gzip\r\n", b"not gzip")]).unwrap();
    let err = exchange(&http(|_| ()), &server.url).await.unwrap_err();
    assert_eq!(err.kind, HttpErrorKind::Malformed, "{err}");
    let server = Server::saying(vec![whole(
        200,
        "content-encoding: gzip\r\n",
        pack(b"hello"),
    )])
    .unwrap();
    assert_eq!(
        exchange(&http(|_| ()), &server.url).await.unwrap().1,
        b"hello"
    );

    let bomb = pack(&vec![0; 8 << 20]);
    assert!(bomb.len() < 16 << 10);
    let server = Server::saying(vec![whole(200, "content-encoding: gzip\r\n", bomb)]).unwrap();
    let err = exchange(&http(|o| o.max_body = 1 << 20), &server.url)
        .await
        .unwrap_err();
    assert!(
        err.kind == HttpErrorKind::TooLarge && err.message.ends_with("larger than 1048576 bytes"),
        "{err}"
    );
}

#[tokio::test]
async fn a_body_that_was_cut_off_is_an_error() {
    let server = Server::saying(vec![stream_head(), chunk("data: a\n\n"), Act::Close]).unwrap();
    let err = exchange(&http(|_| ()), &server.url).await.unwrap_err();
    assert_eq!(err.kind, HttpErrorKind::Broken, "{err}");
    let server = Server::saying(vec![Act::Close]).unwrap();
    assert_eq!(
        exchange(&http(|_| ()), &server.url).await.unwrap_err().kind,
        HttpErrorKind::Broken
    );
}

#[tokio::test]
async fn too_many_headers_and_nonsense_are_malformed() {
    let many = "x: y\r\n".repeat(5_000);
    for act in [
        whole(200, &many, ""),
        Act::Say(b"SSH-2.0-nope\r\n\r\n".to_vec()),
    ] {
        let server = Server::saying(vec![act, Act::Close]).unwrap();
        let err = exchange(&http(|_| ()), &server.url).await.unwrap_err();
        assert_eq!(err.kind, HttpErrorKind::Malformed, "{err}");
    }
}

#[tokio::test]
async fn a_server_that_sends_no_headers_ends_after_the_idle_timeout() {
    let server = Server::saying(vec![Act::Hang]).unwrap();
    let err = exchange(
        &http(|o| o.idle_timeout = Duration::from_millis(60)),
        &server.url,
    )
    .await
    .unwrap_err();
    assert_eq!(err.kind, HttpErrorKind::Idle, "{err}");
}

/// Returns a body that yields one byte after each pause, in seconds of a paused clock.
fn slow_body(pauses: &[u64]) -> HttpBody {
    let pauses = pauses.to_vec();
    let stream = futures_util::stream::unfold(pauses.into_iter(), |mut pauses| async move {
        tokio::time::sleep(Duration::from_secs(pauses.next()?)).await;
        Some((Ok(Bytes::from_static(b"x")), pauses))
    });
    http(|_| ()).body(Box::pin(stream), "h".into(), None)
}

#[tokio::test(start_paused = true)]
async fn a_body_without_data_ends_after_the_idle_timeout_and_each_byte_resets_it() {
    assert_eq!(read(slow_body(&[100; 30])).await.unwrap().len(), 30);
    let err = read(slow_body(&[100, 119, 121, 1])).await.unwrap_err();
    assert_eq!(err, idle_error("h", Duration::from_secs(120)));
    assert_eq!(err.message, "`h` sent no data for 120 s");
}

#[tokio::test(start_paused = true)]
async fn a_slow_body_ends_after_the_total_timeout() {
    assert_eq!(read(slow_body(&[100; 35])).await.unwrap().len(), 35);
    let err = read(slow_body(&[100; 37])).await.unwrap_err();
    assert_eq!(err.kind, HttpErrorKind::TooSlow);
    assert_eq!(
        err.message,
        "the answer of `h` was not complete after 3600 s"
    );
    assert_eq!(
        ProviderError::from(err).kind,
        ProviderErrorKind::Network {
            transient: false,
            sent: true
        }
    );
}

#[tokio::test]
async fn failures_to_connect_have_their_own_kinds() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let err = exchange(&http(|_| ()), &format!("http://{free}/"))
        .await
        .unwrap_err();
    assert_eq!(err.kind, HttpErrorKind::Refused, "{err}");

    let err = exchange(&http(|_| ()), "http://no-such-name.invalid/")
        .await
        .unwrap_err();
    assert!(
        err.kind == HttpErrorKind::Dns && err.message.contains("`no-such-name.invalid`"),
        "{err:?}"
    );

    // A server that answers a handshake in plain text.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let answer = tokio::spawn(async move {
        use tokio::io::AsyncWriteExt;
        let (mut stream, _) = listener.accept().await.unwrap();
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .unwrap();
        stream
    });
    let err = exchange(&http(|_| ()), &url).await.unwrap_err();
    drop(answer.await.unwrap());
    assert_eq!(err.kind, HttpErrorKind::Tls, "{err}");
}

#[tokio::test]
async fn a_proxy_is_used_for_its_scheme_and_its_refusal_is_named() {
    let proxy = Server::saying(vec![whole(403, "", ""), Act::Close]).unwrap();
    let through = http(|o| o.https_proxy = Some(proxy.url.clone()));
    let err = exchange(&through, "https://api.example.invalid/v1")
        .await
        .unwrap_err();
    assert_eq!(err.kind, HttpErrorKind::Proxy, "{err}");
    assert!(proxy.requests()[0].starts_with("CONNECT api.example.invalid:443"));
    assert!(!proxy.requests()[0].contains("secret-key"));

    let direct = http(|o| {
        o.https_proxy = Some(proxy.url.clone());
        o.no_proxy = Some("example.invalid".to_owned());
    });
    assert_eq!(
        exchange(&direct, "https://api.example.invalid/v1")
            .await
            .unwrap_err()
            .kind,
        HttpErrorKind::Dns
    );
    // Loopback is always direct.
    let server = Server::saying(vec![whole(200, "", "ok")]).unwrap();
    assert_eq!(
        exchange(
            &http(|o| o.http_proxy = Some(proxy.url.clone())),
            &server.url
        )
        .await
        .unwrap()
        .0,
        200
    );
    assert_eq!(proxy.requests().len(), 1);
}

#[test]
fn a_bad_proxy_or_ca_is_refused_without_echoing_it() {
    let options = HttpOptions {
        https_proxy: Some("http://user:hunter2@[bad".into()),
        ..HttpOptions::default()
    };
    let err = Http::new(&options).unwrap_err().to_string();
    assert!(
        err.contains("HTTPS_PROXY") && !err.contains("hunter2"),
        "{err}"
    );
    let options = HttpOptions {
        extra_ca_pem: Some(b"nothing".to_vec()),
        ..HttpOptions::default()
    };
    assert!(
        Http::new(&options)
            .unwrap_err()
            .to_string()
            .contains("extra CA file")
    );
}
