//! Changes the files of a lane's adapter. Each file has a current version and a next version; the commands swap both.

use std::{fs, path::Path};

use anyhow::{Context as _, bail};

/// The adapter's configuration file, and an invalid version of it.
pub(crate) const CONFIG: &str = "config.yaml";
const BAD_CONFIG: &str = "limits: {buckets: {compute: {rate: -1, burst: none}}}\n";
const GOOD_COPY: &str = "config.good.yaml";

pub(crate) const SERVER_FILES: [&str; 2] = ["server.pem", "server.key"];

pub(super) fn run(name: &str, folder: &Path) -> anyhow::Result<()> {
    match name {
        "breakConfig" => {
            fs::copy(folder.join(CONFIG), folder.join(GOOD_COPY))?;
            replace(&folder.join(CONFIG), BAD_CONFIG.as_bytes())
        }
        "mendConfig" => {
            let mut good = fs::read(folder.join(GOOD_COPY)).context("the configuration is already valid")?;
            good.extend(b"# mended\n");
            replace(&folder.join(CONFIG), &good)
        }
        "rotateServerCertificate" => SERVER_FILES.iter().try_for_each(|file| swap(&folder.join(file))),
        "rotateTokens" => {
            for entry in fs::read_dir(folder)? {
                let path = entry?.path();
                if path.extension().is_some_and(|extension| extension == "token") {
                    swap(&path)?;
                }
            }
            Ok(())
        }
        _ => bail!("unknown command '{name}'"),
    }
}

/// Exchanges a file and its next version.
fn swap(path: &Path) -> anyhow::Result<()> {
    let next = next(path);
    let (now, then) = (fs::read(path)?, fs::read(&next).with_context(|| next.display().to_string())?);
    replace(path, &then)?;
    replace(&next, &now)
}

pub(crate) fn next(path: &Path) -> std::path::PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".next");
    name.into()
}

/// Replaces a file atomically, so that the adapter never reads half of it.
pub(crate) fn replace(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let mut whole = path.as_os_str().to_owned();
    whole.push(".new");
    fs::write(&whole, content)?;
    fs::rename(&whole, path)?;
    Ok(())
}
