//! Certificates are replaced while connections are open.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use cloud_adapter::{auth::TlsFiles, testing::Ca};

use crate::bench::{Bench, Client, NAME, Setting, mount, mounted, until, wall};

const METHOD: &str = "/cloudadapter.v1alpha1.AdapterService/GetInfo";
const DAY: Duration = Duration::from_hours(24);

/// Makes calls until `enough` is set; all calls must succeed.
async fn call_on(client: Client, calls: &AtomicUsize, enough: &AtomicBool) {
    while !enough.load(Ordering::Relaxed) {
        client.call_until_sent(METHOD).await.expect("no call fails");
        calls.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn no_call_fails_while_certificates_are_replaced() {
    let (old, new) = (Ca::new("old"), Ca::new("new"));
    let dir = tempfile::tempdir().expect("a folder");
    let identity = mounted(&dir, &old.server(NAME, wall() + DAY));
    let tls = Some(TlsFiles { identity, client_ca: None });
    let bench = Bench::start(Setting { tls, ..Setting::default() }).await;
    let (calls, enough) = (AtomicUsize::new(0), AtomicBool::new(false));
    let more = async || {
        let before = calls.load(Ordering::Relaxed);
        until("further calls were made", async || calls.load(Ordering::Relaxed) > before + 20).await;
    };
    let script = async {
        more().await;
        mount(dir.path(), &new.server(NAME, wall() + DAY));
        until("the certificate is the new one", async || bench.secure(&new, None).call(METHOD).await.is_ok())
            .await;
        assert!(
            bench.secure(&old, None).call(METHOD).await.is_err(),
            "new connections use the new certificate"
        );
        more().await;
        std::fs::write(dir.path().join("tls.key"), "nonsense").expect("a written file");
        more().await;
        assert!(bench.secure(&new, None).call(METHOD).await.is_ok(), "an invalid file has no effect");
        enough.store(true, Ordering::Relaxed);
    };
    tokio::join!(
        call_on(bench.secure(&old, None), &calls, &enough),
        call_on(bench.secure(&old, None), &calls, &enough),
        script,
    );
}
