//! Reloads files while the process runs: certificates, tokens, limits.
//!
//! This module compares contents, and not times or inode events. Kubernetes replaces mounted files by swapping a symbolic link, which file
//! watches notice late or never. If a file cannot be read or parsed, the old value is kept.

use std::{fmt, fs, io, path::PathBuf, sync::Arc, time::Duration};

use sha2::{Digest as _, Sha256};
use tokio::{sync::watch, time::MissedTickBehavior};

/// Default interval between reads. Each read is local and cheap: a few kilobytes.
pub(crate) const EVERY: Duration = Duration::from_secs(5);

/// Why new file contents are not used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ReloadError<E> {
    /// A file cannot be read.
    #[error("{path}: cannot be read: {kind}")]
    Read {
        /// The path of the file.
        path: String,
        /// The cause of the error.
        kind: io::ErrorKind,
    },
    /// The contents are invalid.
    #[error("{paths}: {error}")]
    Parse {
        /// The paths of the files.
        paths: String,
        /// The cause of the error.
        error: E,
    },
}

/// Files that belong together, such as a certificate and its key, and the value parsed from them.
pub(crate) struct Follow<T, P> {
    paths: Vec<PathBuf>,
    parse: P,
    current: watch::Sender<Arc<T>>,
    /// The digest of the last contents, valid or not, so that each change is reported once.
    seen: Seen,
}

impl<T, P> fmt::Debug for Follow<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follow").field("paths", &self.paths).finish_non_exhaustive()
    }
}

/// What the last read found. The contents may be secret, so only a digest is kept.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    Content([u8; 32]),
    Unreadable(io::ErrorKind),
}

impl<T, P, E> Follow<T, P>
where
    P: Fn(&[Vec<u8>]) -> Result<T, E>,
    E: fmt::Display,
{
    /// Reads the files for the first time. `parse` gets the contents of the files in the order of `paths`.
    pub(crate) fn start(paths: impl IntoIterator<Item = PathBuf>, parse: P) -> Result<Self, ReloadError<E>> {
        let paths: Vec<PathBuf> = paths.into_iter().collect();
        let contents = read(&paths).map_err(|(path, kind)| ReloadError::Read { path, kind })?;
        let value = parse(&contents).map_err(|error| ReloadError::Parse { paths: names(&paths), error })?;
        let current = watch::Sender::new(Arc::new(value));
        Ok(Self { paths, parse, current, seen: Seen::Content(digest(&contents)) })
    }

    #[must_use]
    pub(crate) fn current(&self) -> watch::Receiver<Arc<T>> {
        self.current.subscribe()
    }

    /// Reads the files periodically; never returns. Calls `report` for every change, with the new value, or with the reason why the new
    /// contents are not used.
    pub(crate) async fn run(mut self, every: Duration, report: impl Fn(Result<&T, &ReloadError<E>>)) {
        let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match self.read_again() {
                None => (),
                Some(Ok(value)) => {
                    report(Ok(&value));
                    self.current.send_replace(value);
                }
                Some(Err(error)) => report(Err(&error)),
            }
        }
    }

    /// `None`: the contents did not change.
    fn read_again(&mut self) -> Option<Result<Arc<T>, ReloadError<E>>> {
        // The files are small and in memory, so a blocking read is acceptable.
        let contents = read(&self.paths);
        let seen = match &contents {
            Ok(contents) => Seen::Content(digest(contents)),
            Err((_path, kind)) => Seen::Unreadable(*kind),
        };
        if seen == self.seen {
            return None;
        }
        self.seen = seen;
        let value = contents.map_err(|(path, kind)| ReloadError::Read { path, kind }).and_then(|contents| {
            let refused = |error| ReloadError::Parse { paths: names(&self.paths), error };
            (self.parse)(&contents).map_err(refused)
        });
        Some(value.map(Arc::new))
    }
}

fn read(paths: &[PathBuf]) -> Result<Vec<Vec<u8>>, (String, io::ErrorKind)> {
    paths
        .iter()
        .map(|path| fs::read(path).map_err(|error| (path.display().to_string(), error.kind())))
        .collect()
}

fn names(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The lengths are hashed, too, so that the digest changes if bytes move from one file to another.
fn digest(contents: &[Vec<u8>]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for content in contents {
        hash.update(content.len().to_le_bytes());
        hash.update(content);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::symlink, path::Path, str, sync::Mutex};

    use super::*;

    fn number(contents: &[Vec<u8>]) -> Result<u32, String> {
        let text = str::from_utf8(&contents[0]).map_err(|error| error.to_string())?;
        text.trim().parse().map_err(|error| format!("{text:?}: {error}"))
    }

    /// A volume as the kubelet mounts it: `value` points to `..data/value`, and `..data` points to one of several directories.
    struct Volume(tempfile::TempDir);

    impl Volume {
        fn with(text: &str) -> Self {
            let volume = Self(tempfile::tempdir().expect("a folder"));
            symlink("..data/value", volume.path()).expect("a link");
            volume.swap("first", text);
            volume
        }

        fn path(&self) -> PathBuf {
            self.0.path().join("value")
        }

        fn swap(&self, folder: &str, text: &str) {
            let base = self.0.path();
            fs::create_dir(base.join(folder)).expect("a folder");
            fs::write(base.join(folder).join("value"), text).expect("a file");
            symlink(folder, base.join("..new")).expect("a link");
            fs::rename(base.join("..new"), base.join("..data")).expect("an atomic swap");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_swapped_volume_is_used_and_a_bad_one_ignored() {
        let volume = Volume::with("1");
        let follow = Follow::start([volume.path()], number).expect("good");
        let current = follow.current();
        let reported = Mutex::new(Vec::new());
        let note = |result: Result<&u32, &ReloadError<String>>| {
            reported.lock().expect("whole").push(result.map_err(ToString::to_string).copied());
        };
        let script = async {
            let value = |wanted: u32| assert_eq!(**current.borrow(), wanted);
            value(1);
            volume.swap("second", "2");
            value(1);
            tokio::time::sleep(EVERY * 2).await;
            value(2);
            volume.swap("third", "three");
            tokio::time::sleep(EVERY * 4).await;
            value(2);
            fs::remove_file(volume.0.path().join("..data")).expect("there");
            tokio::time::sleep(EVERY * 4).await;
            value(2);
            volume.swap("fourth", "4");
            tokio::time::sleep(EVERY * 2).await;
            value(4);
        };
        tokio::select! {
            () = follow.run(EVERY, note) => (),
            () = script => (),
        }
        let reported = reported.into_inner().expect("whole");
        assert_eq!(reported.len(), 4, "each change is reported once: {reported:?}");
        assert_eq!((&reported[0], &reported[3]), (&Ok(2), &Ok(4)));
        assert!(reported[1].as_ref().is_err_and(|error| error.contains("three")), "{reported:?}");
        assert!(reported[2].as_ref().is_err_and(|error| error.contains("not found")), "{reported:?}");
    }

    #[test]
    fn invalid_files_at_start_are_an_error() {
        let missing = Follow::start([Path::new("/nowhere/value").to_owned()], number).expect_err("missing");
        assert!(matches!(missing, ReloadError::Read { .. }), "{missing}");
        let volume = Volume::with("one");
        let bad = Follow::start([volume.path()], number).expect_err("no number");
        assert!(bad.to_string().contains("value: \"one\""), "{bad}");
    }

    #[test]
    fn the_digest_covers_the_lengths_of_files() {
        let two = |a: &str, b: &str| digest(&[a.into(), b.into()]);
        assert_ne!(two("ab", "c"), two("a", "bc"));
    }
}
