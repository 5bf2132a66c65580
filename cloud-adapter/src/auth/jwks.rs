//! Fetches the cluster's public keys and refreshes them.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use tokio::{
    sync::{Mutex, watch},
    time::Instant,
};

use crate::{
    auth::{ApiServer, KeySet},
    reload,
};

/// Longest interval between two reads from the API server, so that a revoked key does not stay valid forever.
const EVERY: Duration = Duration::from_hours(1);
/// Shortest interval between two reads. A token with an unknown key causes a read, and forged tokens are cheap to make.
const AT_MOST: Duration = Duration::from_secs(10);

/// Source of the keys.
#[derive(Debug)]
pub enum KeySource {
    /// The keys are read from a mounted JWKS file.
    File {
        /// Path of the JWKS file.
        path: PathBuf,
        /// The issuer of the keys, which a JWKS file does not contain.
        issuer: String,
    },
    /// The keys are read from the discovery endpoint of the API server.
    ApiServer {
        /// The client of the API server.
        api: ApiServer,
        /// The issuer of the keys. `None`: the issuer in the discovery document.
        issuer: Option<String>,
    },
}

impl KeySource {
    fn every(&self) -> Duration {
        match self {
            Self::File { .. } => reload::EVERY,
            Self::ApiServer { .. } => EVERY,
        }
    }

    async fn fetch(&self) -> Result<(String, String), String> {
        match self {
            Self::File { path, issuer } => {
                // The file is small and its volume is in memory, so a blocking read is acceptable.
                let text =
                    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
                Ok((issuer.clone(), text))
            }
            Self::ApiServer { api, issuer } => {
                let found = api.discover().await.map_err(|error| error.to_string())?;
                Ok((issuer.clone().unwrap_or(found.issuer), found.jwks))
            }
        }
    }
}

/// The known keys of the cluster.
#[derive(Debug)]
pub struct Keys {
    source: KeySource,
    current: watch::Sender<Option<Arc<KeySet>>>,
    /// The last fetch. The lock is held during a fetch, so that concurrent callers use the same result.
    last: Mutex<Option<Attempt>>,
}

#[derive(Debug)]
struct Attempt {
    at: Instant,
    /// The issuer and the JWKS of this fetch, or the reason why the fetch failed. The next answer is compared with this one.
    answer: Result<(String, String), String>,
}

impl Keys {
    /// Creates an empty set of keys without fetching any.
    #[must_use]
    pub fn new(source: KeySource) -> Self {
        Self { source, current: watch::Sender::new(None), last: Mutex::default() }
    }

    /// Returns the keys. If `id` is unknown and the last fetch is old enough, fetches the keys first.
    ///
    /// The returned set still lacks the key if the cluster does not publish this key.
    pub async fn with(&self, id: &str) -> Result<Arc<KeySet>, String> {
        if let Some(keys) = self.known(id) {
            return Ok(keys);
        }
        let mut last = self.last.lock().await;
        if let Some(keys) = self.known(id) {
            return Ok(keys);
        }
        if last.as_ref().is_none_or(|last| last.at.elapsed() >= AT_MOST) {
            self.refresh(&mut last).await;
        }
        let failed = last.as_ref().and_then(|last| last.answer.as_ref().err());
        match (self.current.borrow().clone(), failed) {
            (Some(keys), None) => Ok(keys),
            (Some(keys), Some(_)) if keys.has(id) => Ok(keys),
            (_, why) => {
                Err(why.cloned().unwrap_or_else(|| "the token keys have not been fetched yet".to_owned()))
            }
        }
    }

    /// Fetches the keys periodically; never returns.
    pub async fn keep_fresh(&self) {
        loop {
            self.refresh(&mut *self.last.lock().await).await;
            let failed = self.last.lock().await.as_ref().is_none_or(|last| last.answer.is_err());
            tokio::time::sleep(pause(self.source.every(), failed)).await;
        }
    }

    /// Fetches the keys now.
    pub async fn fetch(&self) -> Result<(), String> {
        let mut last = self.last.lock().await;
        self.refresh(&mut last).await;
        let failed = last.as_ref().and_then(|last| last.answer.as_ref().err());
        failed.map_or(Ok(()), |why| Err(why.clone()))
    }

    fn known(&self, id: &str) -> Option<Arc<KeySet>> {
        self.current.borrow().clone().filter(|keys| keys.has(id))
    }

    /// An unusable answer does not change the known keys.
    async fn refresh(&self, last: &mut Option<Attempt>) {
        let known = last.take().and_then(|last| last.answer.ok());
        let answer = match self.source.fetch().await {
            Ok(found) if known.as_ref() == Some(&found) => Ok(found),
            Ok(found) => self.take_over(&found).map(|()| found),
            Err(why) => Err(why),
        };
        if let Err(why) = &answer {
            tracing::warn!(why, "Cannot fetch the cluster's token keys; continuing with the known keys");
        }
        *last = Some(Attempt { at: Instant::now(), answer });
    }

    fn take_over(&self, (issuer, jwks): &(String, String)) -> Result<(), String> {
        let keys = KeySet::parse(issuer, jwks).map_err(|error| format!("the key set {error}"))?;
        tracing::info!(?keys, "Fetched the cluster's token keys");
        self.current.send_replace(Some(Arc::new(keys)));
        Ok(())
    }
}

/// Returns the delay before the next fetch. The delay after a failure is short, so that a revoked key does not stay valid for another hour.
fn pause(every: Duration, failed: bool) -> Duration {
    if failed { every.min(AT_MOST) } else { every }
}

#[cfg(test)]
mod tests;
