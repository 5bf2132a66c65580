//! Faults in how the process handles its flags and signals.

use std::{
    fs::File,
    os::fd::IntoRawFd,
    path::{Path, PathBuf},
    time::Duration,
};

use cloud_adapter::{AuthenticationKind, Config, Options, SecurityOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::task::TaskTracker;

use super::Fault;

const CHECK_EVERY: Duration = Duration::from_millis(100);

pub(crate) fn change(fault: Fault, mut options: Options) -> Options {
    if matches!(fault, Fault::AdmitsEverybody | Fault::IgnoresRoles) {
        options.security = SecurityOptions {
            authentication: Some(AuthenticationKind::None),
            identity: Vec::new(),
            token_issuer: None,
            token_audience: None,
            token_jwks: None,
            client_ca: None,
            trust_domain: None,
            ..options.security
        };
    }
    if fault == Fault::Overspends {
        options.config = None;
    }
    if fault == Fault::EternalConnections {
        options.max_connection_age = Duration::from_hours(24);
    }
    if fault == Fault::CertificateReadOnce {
        let security = &mut options.security;
        for file in [&mut security.tls_cert, &mut security.tls_key].into_iter().flatten() {
            *file = as_it_is(file);
        }
    }
    options
}

/// Returns a path that always leads to the file that is at `path` now, even if another file replaces it later.
fn as_it_is(path: &Path) -> PathBuf {
    // If the file cannot be opened, the adapter reports the error when it reads the file. The descriptor stays open until the process ends.
    let open = File::open(path).map(IntoRawFd::into_raw_fd);
    open.map_or_else(|_error| path.to_owned(), |file| format!("/dev/fd/{file}").into())
}

/// Returns whether the flags require callers to authenticate.
pub(crate) fn callers_prove(options: &Options) -> bool {
    let SecurityOptions { authentication, tls_cert, tls_ca_cert, .. } = &options.security;
    let usual = tls_cert.is_some() || tls_ca_cert.is_some();
    authentication.map_or(usual, |kind| kind != AuthenticationKind::None)
}

/// Ends the process on an event that a correct process survives. Must be called inside a tokio runtime.
pub(crate) fn follow(fault: Fault, options: &Options) -> std::io::Result<()> {
    if fault == Fault::DiesOnSigterm {
        let mut term = signal(SignalKind::terminate())?;
        TaskTracker::new().spawn(async move {
            term.recv().await;
            end();
        });
    }
    if fault == Fault::BadConfigStops
        && let Some(path) = options.config.clone()
    {
        TaskTracker::new().spawn(async move {
            let good =
                |text: std::io::Result<String>| text.is_ok_and(|text| Config::parse(&text, &[]).is_ok());
            while good(std::fs::read_to_string(&path)) {
                tokio::time::sleep(CHECK_EVERY).await;
            }
            end();
        });
    }
    Ok(())
}

#[expect(clippy::exit, reason = "a process that ends is the injected fault")]
fn end() {
    std::process::exit(3);
}
