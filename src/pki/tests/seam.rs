//! What the seam refuses, and that neither side hangs on a silent peer.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use quorate_pki::{EndpointError, ListenError, Profile, Security};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::StreamExt as _;
use tonic::codegen::Service as _;
use tonic::codegen::http;
use tonic::service::Routes;

const LOOPBACK: Security = Security::PlaintextLoopback;

#[test]
fn security_is_named_in_configuration() {
    for security in [Security::PlaintextLoopback, Security::PlaintextAnywhere] {
        assert_eq!(security.to_string().parse(), Ok(security.clone()));
        assert!(security.warning().unwrap().contains("plain text without authentication"));
    }
    let message = "off".parse::<Security>().unwrap_err().to_string();
    assert_eq!(message, "security \"off\" is unknown; use plaintext-loopback or plaintext-anywhere");
}

#[tokio::test]
async fn plain_text_beyond_the_machine_needs_an_explicit_choice() {
    for text in ["0.0.0.0:0", "[::]:0", "192.0.2.1:7420"] {
        let refused = LOOPBACK.listen(Profile::Agent, text.parse().unwrap()).await.unwrap_err();
        assert!(matches!(refused, ListenError::Unprotected { .. }), "{text}: {refused}");
    }
    let refused = LOOPBACK.listen(Profile::Api, "0.0.0.0:7420".parse().unwrap()).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "refusing the API listener on 0.0.0.0:7420: its traffic would cross the network as plain text without \
         authentication; listen on a loopback address like 127.0.0.1:7420, or, where the network itself is protected, \
         set security to plaintext-anywhere"
    );
    let open = Security::PlaintextAnywhere.listen(Profile::Api, "0.0.0.0:0".parse().unwrap()).await.unwrap();
    assert_ne!(open.local_addr().port(), 0);
}

#[tokio::test]
async fn a_port_in_use_is_named_with_what_to_do() {
    let first = LOOPBACK.listen(Profile::Api, "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let taken = first.local_addr();
    let refused = LOOPBACK.listen(Profile::Peer, taken).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!(
            "the peer listener cannot have {taken}: the port is in use; stop the process that has it \
             (ss -ltnp 'sport = :{port}' names it) or choose another port",
            port = taken.port()
        )
    );
    drop(first);
    LOOPBACK.listen(Profile::Peer, taken).await.unwrap();
}

#[tokio::test]
async fn an_address_of_no_interface_is_named_as_such() {
    // TEST-NET-1, which RFC 5737 keeps for documentation.
    let refused =
        Security::PlaintextAnywhere.listen(Profile::Api, "192.0.2.1:0".parse().unwrap()).await.unwrap_err();
    assert!(matches!(refused, ListenError::NoSuchAddress { .. }), "{refused}");
}

#[test]
fn addresses_to_dial_are_checked() {
    let dial = |security: &Security, text: &str| security.endpoint(Profile::Api, text);
    for good in
        ["127.0.0.1:7420", "http://127.0.0.1:7420", "http://127.0.0.1:7420/", "[::1]:7420", "localhost:7420"]
    {
        let endpoint = dial(&LOOPBACK, good).unwrap();
        assert_eq!(endpoint.get_connect_timeout(), Some(Duration::from_secs(2)), "{good}");
        assert!(endpoint.get_tcp_nodelay(), "{good}");
    }
    let table = [
        ("", "it is no URL"),
        ("a b:1", "it is no URL"),
        ("127.0.0.1", "it has no port"),
        ("127.0.0.1:0", "it has no port"),
        ("127.0.0.1:7420/v1", "it has a path"),
        ("ftp://127.0.0.1:7420", "the scheme \"ftp\" is unknown"),
    ];
    for (bad, reason) in table {
        let message = dial(&LOOPBACK, bad).unwrap_err().to_string();
        let expected =
            format!("the API address {bad:?} is invalid: {reason}; write HOST:PORT or http://HOST:PORT");
        assert!(message.starts_with(&expected), "{message}");
    }
    assert!(matches!(dial(&LOOPBACK, "https://127.0.0.1:7420"), Err(EndpointError::TlsUnavailable { .. })));
    for far in ["192.0.2.1:7420", "m1.example.org:7420", "[2001:db8::1]:7420"] {
        assert!(matches!(dial(&LOOPBACK, far), Err(EndpointError::Unprotected { .. })), "{far}");
        dial(&Security::PlaintextAnywhere, far).unwrap();
    }
}

/// A frozen process or a partition that eats bytes: the connection stays open and nothing comes back.
#[tokio::test]
async fn a_call_to_a_silent_server_fails_instead_of_hanging() {
    for profile in Profile::ALL {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = silent.local_addr().unwrap().to_string();
        let mut channel = LOOPBACK.endpoint(profile, &target).unwrap().connect().await.unwrap();
        let (_held_open, _) = silent.accept().await.unwrap();

        // From here on time passes as fast as nothing else happens.
        tokio::time::pause();
        std::future::poll_fn(|context| channel.poll_ready(context)).await.unwrap();
        let failed = channel.call(http::Request::new(tonic::body::Body::empty())).await;
        assert!(failed.is_err(), "{profile}");
        tokio::time::resume();
    }
}

/// What a client says before it falls silent; the server must close, at the latest by its timers.
async fn hears_the_end_after(profile: Profile, said: &[u8], answered: bool) {
    let listener = LOOPBACK.listen(profile, "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let target = listener.local_addr();
    let server =
        LOOPBACK.server(profile).add_routes(Routes::default()).serve_with_incoming(listener.incoming());
    let client = async {
        let mut stream = TcpStream::connect(target).await.unwrap();
        stream.write_all(said).await.unwrap();
        if answered {
            stream.read_exact(&mut [0]).await.unwrap();
        }
        tokio::time::pause();
        // Ends only when the server closes; a reset is a close as well.
        let _ = stream.read_to_end(&mut Vec::new()).await;
        tokio::time::resume();
    };
    tokio::select! {
        ended = server => panic!("{profile}: the server ended: {ended:?}"),
        () = client => {}
    }
}

#[tokio::test]
async fn a_silent_client_is_hung_up_on() {
    const PREFACE_AND_EMPTY_SETTINGS: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    for profile in Profile::ALL {
        hears_the_end_after(profile, PREFACE_AND_EMPTY_SETTINGS, true).await;
        hears_the_end_after(profile, b"", false).await;
        hears_the_end_after(profile, b"PRI * HTTP/2.0\r\n", false).await;
    }
}

#[tokio::test]
async fn a_client_of_http_1_is_served_and_hung_up_on_when_it_stops_half_way_or_says_no_more() {
    let half = b"POST /quorate.api.v1.JobService/GetJob HTTP/1.1\r\nhost: a\r\n";
    hears_the_end_after(Profile::Api, half, false).await;
    let whole = b"POST /quorate.api.v1.JobService/GetJob HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n";
    hears_the_end_after(Profile::Api, whole, true).await;
}

#[tokio::test]
async fn an_accepted_connection_carries_bytes_both_ways() {
    let listener = LOOPBACK.listen(Profile::Api, "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr()).await.unwrap();
    client.write_all(b"hello").await.unwrap();
    let mut incoming = std::pin::pin!(listener.incoming());
    let mut accepted = incoming.next().await.unwrap().unwrap();
    let mut heard = [0; 5];
    accepted.read_exact(&mut heard).await.unwrap();
    accepted.write_all(&heard).await.unwrap();
    let mut echoed = [0; 5];
    client.read_exact(&mut echoed).await.unwrap();
    assert_eq!(&echoed, b"hello");
}
