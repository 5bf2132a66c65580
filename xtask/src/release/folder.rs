//! The folder of a release. It is hidden until it is complete, and is removed if the build is interrupted.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use tempfile::TempDir;

use crate::images::layer;

/// The name of the file with the checksums of all other files, except the signatures.
pub(super) const SUMS: &str = "SHA256SUMS";
/// The signature of [`SUMS`].
pub(super) const SUMS_BUNDLE: &str = "SHA256SUMS.sigstore.json";
pub(super) const PROVENANCE_BUNDLE: &str = "provenance.sigstore.json";

/// An incomplete folder. Dropping this value removes the folder.
#[derive(Debug)]
pub(super) struct Unfinished {
    dir: TempDir,
    whole: PathBuf,
}

impl Unfinished {
    /// Creates the folder next to its final path, so that a rename completes it.
    pub(super) fn begin(output: &Path, name: &str) -> anyhow::Result<Self> {
        let fix = || format!("cannot make {}; choose another --output", output.display());
        let output = std::path::absolute(output).with_context(fix)?;
        fs::create_dir_all(&output).with_context(fix)?;
        let dir = tempfile::Builder::new().prefix(&format!(".{name}.")).tempdir_in(&output);
        Ok(Self { dir: dir.with_context(fix)?, whole: output.join(name) })
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the path of a file relative to the folder. This path is still valid after the rename, unlike the path of the incomplete
    /// folder.
    pub(super) fn inside<'a>(&self, file: &'a Path) -> &'a Path {
        file.strip_prefix(self.path()).unwrap_or(file)
    }

    pub(super) fn write(&self, name: &str, content: &[u8]) -> anyhow::Result<()> {
        let path = self.path().join(name);
        let parent = path.parent().map_or(Ok(()), fs::create_dir_all);
        parent.and_then(|()| fs::write(&path, content)).with_context(|| format!("cannot write {name}"))
    }

    pub(super) fn sums(&self) -> anyhow::Result<()> {
        self.write(SUMS, sums(&digests(self.path())?).as_bytes())
    }

    /// Renames the folder. Removes an older folder of the same name.
    pub(super) fn finish(self) -> anyhow::Result<PathBuf> {
        let readable = fs::set_permissions(self.path(), permissions());
        readable.context("cannot make the folder readable for other users")?;
        let Self { dir, whole } = self;
        match fs::remove_dir_all(&whole) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", whole.display()));
            }
            Ok(()) | Err(_) => (),
        }
        fs::rename(dir.path(), &whole).with_context(|| format!("cannot make {}", whole.display()))?;
        Ok(whole)
    }
}

/// Temporary folders are private to their creator, but the release is for all users.
fn permissions() -> fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o755)
}

/// Returns the checksums of all files, by their paths in the folder.
pub(super) fn digests(folder: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let mut digests = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).with_context(|| format!("cannot read {}", next.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let content = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let name = path.strip_prefix(folder)?.to_string_lossy().into_owned();
            digests.insert(name, layer::digest(&content));
        }
    }
    Ok(digests)
}

/// Formats the checksums like `sha256sum`.
fn sums(digests: &BTreeMap<String, String>) -> String {
    digests.iter().fold(String::new(), |mut text, (name, digest)| {
        // Writing into a String cannot fail.
        writeln!(text, "{}  {name}", digest.trim_start_matches("sha256:")).ok();
        text
    })
}

/// Parses the output of [`sums`].
pub(super) fn parsed(sums: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let line = |line: &str| {
        let (digest, name) = line.split_once("  ")?;
        Some((name.to_owned(), format!("sha256:{digest}")))
    };
    sums.lines().map(|text| line(text).with_context(|| format!("{SUMS}: invalid line {text:?}"))).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::Unfinished;

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap();
        names.map(|it| it.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn incomplete_folder_is_removed_and_replaces_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let begin = || Unfinished::begin(dir.path(), "a-1").unwrap();
        let whole = dir.path().join("a-1");
        for content in ["old", "new"] {
            let folder = begin();
            folder.write("f", content.as_bytes()).unwrap();
            folder.write("sub/g", b"").unwrap();
            let before = names(dir.path());
            assert!(before.iter().any(|name| name.starts_with(".a-1.")), "{before:?}");
            assert_eq!(folder.inside(&folder.path().join("sub/g")), Path::new("sub/g"));
            folder.sums().unwrap();
            folder.finish().unwrap();
            assert_eq!(names(dir.path()), ["a-1"]);
            assert_eq!(fs::read_to_string(whole.join("f")).unwrap(), content);
        }
        begin().write("f", b"half").unwrap();
        assert_eq!(names(dir.path()), ["a-1"]);
        assert_eq!(fs::read_to_string(whole.join("f")).unwrap(), "new");
        let sums = fs::read_to_string(whole.join("SHA256SUMS")).unwrap();
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  sub/g\n";
        assert!(sums.ends_with(empty) && sums.lines().count() == 2, "{sums}");
        let parsed = super::parsed(&sums).unwrap();
        assert!(parsed["sub/g"].starts_with("sha256:e3b0c442"), "{parsed:?}");
        assert!(super::parsed("one-word\n").is_err());
    }
}
