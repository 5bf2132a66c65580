//! Faults in how the process treats its flags and signals.

use std::time::Duration;

use cloud_adapter::{AuthenticationKind, Config, Options, SecurityOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::task::TaskTracker;

use super::Fault;

/// Between two looks at the configuration file.
const LOOK: Duration = Duration::from_millis(100);

/// The flags as they are taken.
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
    options
}

/// Ends the process where it should go on. Must be called inside a runtime.
///
/// # Errors
/// If signals cannot be listened for.
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
                tokio::time::sleep(LOOK).await;
            }
            end();
        });
    }
    Ok(())
}

#[expect(clippy::exit, reason = "this is the mistake")]
fn end() {
    std::process::exit(3);
}
