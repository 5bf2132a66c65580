use super::*;

fn faults(target: &str, security: &ChannelSecurity) -> Vec<String> {
    let checked = security.check(&target.parse().expect(target));
    checked.err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

#[test]
fn contradictory_settings_are_reported_with_flag_and_fix() {
    let file = || Some(PathBuf::from("/nowhere/file"));
    let none = ChannelSecurity::default;
    let with_ca = || ChannelSecurity { ca: file(), ..none() };
    let name = || Some("cloud-adapter".to_owned());
    for (target, security, words) in [
        (
            "https://a:1",
            none(),
            "--adapter-endpoint https://a:1: TLS needs the CA of the adapter's certificate: set --adapter-ca-file to its file",
        ),
        (
            "http://a:1",
            with_ca(),
            "--adapter-ca-file /nowhere/file: TLS is not used with --adapter-endpoint http://; use https://a:1",
        ),
        ("unix:/a", with_ca(), "TLS is not used with --adapter-endpoint unix:"),
        (
            "static:///a:1",
            ChannelSecurity { server_name: name(), ..none() },
            "--adapter-server-name cloud-adapter: a server name is only checked with TLS: add --adapter-ca-file",
        ),
        (
            "dns:///a:1",
            ChannelSecurity { token: file(), ..none() },
            "--adapter-token-file /nowhere/file: without TLS, others could read the token on the network",
        ),
        (
            "http://a:1",
            ChannelSecurity { client_certificate: file(), client_key: file(), ..none() },
            "--adapter-client-cert /nowhere/file: the certificate is only used with TLS",
        ),
        (
            "https://a:1",
            ChannelSecurity { ca: file(), client_certificate: file(), ..none() },
            "--adapter-client-cert /nowhere/file: a certificate needs its key: add --adapter-client-key",
        ),
        (
            "https://a:1",
            ChannelSecurity { ca: file(), client_key: file(), ..none() },
            "--adapter-client-key /nowhere/file: a key needs its certificate",
        ),
        ("https://a:1", with_ca(), "--adapter-ca-file /nowhere/file: cannot be read: No such file"),
        (
            "http://127.0.0.1:1",
            ChannelSecurity { token: file(), ..none() },
            "--adapter-token-file /nowhere/file: cannot be read: No such file",
        ),
        (
            "https://a:1",
            ChannelSecurity { ca: file(), server_name: Some("a b".to_owned()), ..none() },
            "--adapter-server-name a b: use a DNS name or an IP address",
        ),
    ] {
        let found = faults(target, &security);
        assert!(found.iter().any(|fault| fault.contains(words)), "{target}: {found:?}, not: {words}");
    }
}

#[test]
fn files_with_wrong_contents_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str, content: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, content).expect("a file");
        Some(path)
    };
    let none = ChannelSecurity::default;
    for (security, words) in [
        (ChannelSecurity { ca: path("a", ""), ..none() }, "contains no certificate in PEM format"),
        (
            ChannelSecurity {
                ca: path("b", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
                ..none()
            },
            "contains an invalid certificate",
        ),
        (ChannelSecurity { token: path("c", " \n"), ..none() }, "is empty"),
        (ChannelSecurity { token: path("d", "two words"), ..none() }, "contains no token"),
    ] {
        let found = faults("https://a:1", &security);
        assert!(found.iter().any(|fault| fault.contains(words)), "{found:?}, not: {words}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_is_read_again_and_does_not_print() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("token");
    std::fs::write(&path, "canary-1\n").expect("a file");
    let token = Token::load(&path, "--adapter-token-file").expect("a good token");
    assert_eq!(token.header().await, "Bearer canary-1");
    for (content, expected) in
        [("canary-2", "Bearer canary-2"), ("", "Bearer canary-2"), ("canary-3", "Bearer canary-3")]
    {
        std::fs::write(&path, content).expect("a file");
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        assert_eq!(token.header().await, expected);
    }
    let printed = format!("{token:?} {:?}", token.header().await);
    assert!(!printed.contains("canary"), "{printed}");
}
