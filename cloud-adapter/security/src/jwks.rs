//! Where the cluster's public keys come from, and when they are fetched anew.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use tokio::{
    sync::{Mutex, watch},
    time::Instant,
};

use crate::{ApiServer, KeySet, reload};

/// The API server is asked at least this often: a key that was taken back must not count for ever.
const EVERY: Duration = Duration::from_hours(1);
/// A token with an unknown key makes us look again, but not more often than this: tokens are cheap to make up.
const AT_MOST: Duration = Duration::from_secs(10);

/// Where keys come from.
#[derive(Debug)]
pub enum KeySource {
    /// A mounted JWKS.
    File {
        /// Where.
        path: PathBuf,
        /// Whose keys they are: a JWKS does not say it.
        issuer: String,
    },
    /// The API server's discovery endpoint.
    ApiServer {
        /// Who is asked.
        api: ApiServer,
        /// `None`: the issuer is as discovered.
        issuer: Option<String>,
    },
}

impl KeySource {
    /// How often it is looked at.
    fn every(&self) -> Duration {
        match self {
            Self::File { .. } => reload::EVERY,
            Self::ApiServer { .. } => EVERY,
        }
    }

    /// The issuer and the text of the JWKS.
    async fn fetch(&self) -> Result<(String, String), String> {
        match self {
            Self::File { path, issuer } => {
                // A small mounted file: not worth a thread.
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

/// The cluster's keys as far as they are known.
#[derive(Debug)]
pub struct Keys {
    source: KeySource,
    current: watch::Sender<Option<Arc<KeySet>>>,
    /// Held while fetching: whoever comes second finds the result.
    last: Mutex<Option<Attempt>>,
}

#[derive(Debug)]
struct Attempt {
    at: Instant,
    /// The issuer and the keys, so that the same answer does not become a new set; or why there are none.
    answer: Result<(String, String), String>,
}

impl Keys {
    /// Fetches nothing yet.
    #[must_use]
    pub fn new(source: KeySource) -> Self {
        Self { source, current: watch::Sender::new(None), last: Mutex::default() }
    }

    /// The keys, looked at again if the one that is asked for is not among them and it is not too soon.
    ///
    /// The set may still lack the key: then nobody publishes it.
    ///
    /// # Errors
    /// If that cannot be known, because there are no keys or the last look failed: says why.
    pub async fn with(&self, id: &str) -> Result<Arc<KeySet>, String> {
        if let Some(keys) = self.known(id) {
            return Ok(keys);
        }
        let mut last = self.last.lock().await;
        if let Some(keys) = self.known(id) {
            return Ok(keys);
        }
        if last.as_ref().is_none_or(|last| last.at.elapsed() >= AT_MOST) {
            self.look(&mut last).await;
        }
        let failed = last.as_ref().and_then(|last| last.answer.as_ref().err());
        match (self.current.borrow().clone(), failed) {
            (Some(keys), None) => Ok(keys),
            (Some(keys), Some(_)) if keys.has(id) => Ok(keys),
            (_, why) => Err(why.cloned().unwrap_or_else(|| "they were not fetched yet".to_owned())),
        }
    }

    /// Fetches the keys again and again; never ends.
    pub async fn keep_fresh(&self) {
        loop {
            self.look(&mut *self.last.lock().await).await;
            let failed = self.last.lock().await.as_ref().is_none_or(|last| last.answer.is_err());
            tokio::time::sleep(pause(self.source.every(), failed)).await;
        }
    }

    /// Fetches once, now.
    ///
    /// # Errors
    /// Why there are no keys.
    pub async fn fetch(&self) -> Result<(), String> {
        let mut last = self.last.lock().await;
        self.look(&mut last).await;
        let failed = last.as_ref().and_then(|last| last.answer.as_ref().err());
        failed.map_or(Ok(()), |why| Err(why.clone()))
    }

    fn known(&self, id: &str) -> Option<Arc<KeySet>> {
        self.current.borrow().clone().filter(|keys| keys.has(id))
    }

    /// Asks the source; what cannot be used changes nothing.
    async fn look(&self, last: &mut Option<Attempt>) {
        let known = last.take().and_then(|last| last.answer.ok());
        let answer = match self.source.fetch().await {
            Ok(found) if known.as_ref() == Some(&found) => Ok(found),
            Ok(found) => self.take_over(&found).map(|()| found),
            Err(why) => Err(why),
        };
        if let Err(why) = &answer {
            tracing::warn!(why, "The cluster's token keys cannot be fetched: known ones stay in force");
        }
        *last = Some(Attempt { at: Instant::now(), answer });
    }

    fn take_over(&self, (issuer, jwks): &(String, String)) -> Result<(), String> {
        let keys = KeySet::parse(issuer, jwks).map_err(|error| format!("the set of keys {error}"))?;
        tracing::info!(?keys, "The cluster's token keys are known");
        self.current.send_replace(Some(Arc::new(keys)));
        Ok(())
    }
}

/// Until the next look. A failed one must not leave a key that was taken back in force for an hour more.
fn pause(every: Duration, failed: bool) -> Duration {
    if failed { every.min(AT_MOST) } else { every }
}

#[cfg(test)]
mod tests;
