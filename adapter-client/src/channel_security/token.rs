//! Reads the bearer token that authenticates the caller. Its file may be replaced while the process runs.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use http::HeaderValue;
use tokio::{sync::Mutex, time::Instant};
use tracing::{info, warn};

use super::Fault;

/// Age at which the token is read again. Reading is cheap, and a revoked token should be replaced soon.
const MAX_AGE: Duration = Duration::from_secs(1);
/// Maximum size of the file: larger than any token, and smaller than the header limit of servers.
const MAX_BYTES: usize = 16 * 1024;

#[derive(Debug)]
pub(crate) struct Token {
    flag: &'static str,
    path: PathBuf,
    last: Mutex<Reading>,
}

#[derive(Debug)]
struct Reading {
    /// Marked as sensitive, so that it is never printed.
    header: HeaderValue,
    at: Instant,
    trouble: Option<Fault>,
}

impl Token {
    pub(super) fn load(path: &Path, flag: &'static str) -> Result<Self, Fault> {
        let read = std::fs::read(path).map_err(|error| unreadable(&error));
        let header = read.and_then(|content| header(&content));
        let header = header.map_err(|reason| Fault::of_file(flag, path, reason))?;
        let last = Mutex::new(Reading { header, at: Instant::now(), trouble: None });
        Ok(Self { flag, path: path.to_owned(), last })
    }

    /// Returns the value of the `authorization` header, read at most a second ago. If the file is invalid, the last valid token remains in
    /// use.
    pub(crate) async fn header(&self) -> HeaderValue {
        let mut last = self.last.lock().await;
        if last.at.elapsed() >= MAX_AGE {
            last.at = Instant::now();
            let read = tokio::fs::read(&self.path).await.map_err(|error| unreadable(&error));
            match read.and_then(|content| header(&content)) {
                Ok(header) => {
                    if last.trouble.take().is_some() {
                        info!(flag = self.flag, file = %self.path.display(), "The token file for the \
                        cloud adapter is valid again");
                    }
                    last.header = header;
                }
                Err(reason) => {
                    let fault = Fault::of_file(self.flag, &self.path, reason);
                    if last.trouble.as_ref() != Some(&fault) {
                        warn!(error = %fault, "Cannot read the token file for the cloud adapter; \
                        keeping the last valid token");
                    }
                    last.trouble = Some(fault);
                }
            }
        }
        last.header.clone()
    }
}

fn unreadable(error: &std::io::Error) -> String {
    format!("cannot be read: {error}")
}

/// Parses the content of the file. The error never contains the content.
fn header(content: &[u8]) -> Result<HeaderValue, String> {
    let token = content.trim_ascii();
    if token.is_empty() {
        return Err("is empty: it must contain a token".to_owned());
    }
    if token.len() > MAX_BYTES || !token.iter().all(u8::is_ascii_graphic) {
        return Err("contains no token: it must contain one line of printable characters".to_owned());
    }
    let mut header = HeaderValue::try_from([b"Bearer ", token].concat()).map_err(|_invalid| {
        "contains no token: it must contain one line of printable characters".to_owned()
    })?;
    header.set_sensitive(true);
    Ok(header)
}
