//! Builds layers reproducibly: the same files give the same bytes on every computer and at any time.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;

use anyhow::Context;
use flate2::{Compression, GzBuilder};
use pem::{EncodeConfig, LineEnding, Pem};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

/// The path where rustls looks for CA certificates on Linux, without the leading slash.
pub(crate) const ROOTS: &str = "etc/ssl/certs/ca-certificates.crt";

#[derive(Debug, Clone, Copy)]
pub(crate) struct File<'a> {
    /// The path without the leading slash.
    pub(crate) path: &'a str,
    pub(crate) mode: u32,
    pub(crate) content: &'a [u8],
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Layer {
    /// The compressed archive.
    pub(crate) blob: Vec<u8>,
    /// Digest of the uncompressed archive.
    pub(crate) diff_id: String,
    pub(crate) unpacked: u64,
}

/// Builds a layer with these files and their parent folders.
pub(crate) fn layer(files: &[File<'_>]) -> anyhow::Result<Layer> {
    let archive = tar(files)?;
    // The header has no time and no operating system; 255 means "unknown".
    let mut gzip = GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), Compression::best());
    gzip.write_all(&archive).context("cannot compress")?;
    let unpacked = files.iter().map(|file| file.content.len()).sum::<usize>();
    Ok(Layer {
        blob: gzip.finish().context("cannot compress")?,
        diff_id: digest(&archive),
        unpacked: u64::try_from(unpacked).context("too large")?,
    })
}

/// Writes the entries sorted by path, with time 0. They are owned by root and writable only by root, so that the archive does not depend on
/// the computer that builds it.
pub(crate) fn tar(files: &[File<'_>]) -> anyhow::Result<Vec<u8>> {
    let mut files = files.to_vec();
    files.sort_by_key(|file| file.path);
    let folders: BTreeSet<&str> = files.iter().flat_map(|file| above(file.path)).collect();
    let mut archive = Builder::new(Vec::new());
    // Parent folders come before their contents.
    for folder in folders {
        let mut header = header(EntryType::Directory, 0o755, 0);
        archive.append_data(&mut header, format!("{folder}/"), std::io::empty()).context("cannot pack")?;
    }
    for file in files {
        let size = u64::try_from(file.content.len()).context("too large")?;
        let mut header = header(EntryType::Regular, file.mode, size);
        archive.append_data(&mut header, file.path, file.content).context("cannot pack")?;
    }
    archive.into_inner().context("cannot pack")
}

/// Returns the parent folders of a path, the outermost first.
fn above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').filter_map(|(end, _)| path.get(..end))
}

fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    let mut text = "sha256:".to_owned();
    for byte in Sha256::digest(bytes) {
        // Writing into a String cannot fail.
        write!(text, "{byte:02x}").ok();
    }
    text
}

/// Mozilla's root certificates, in the version of Cargo.lock, independent of this computer.
pub(crate) fn roots() -> String {
    let roots = webpki_root_certs::TLS_SERVER_ROOT_CERTS;
    let roots: Vec<_> = roots.iter().map(|root| Pem::new("CERTIFICATE", root.as_ref())).collect();
    pem::encode_many_config(&roots, EncodeConfig::new().set_line_ending(LineEnding::LF))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::{File, digest, layer, roots, tar};

    const FILES: [File<'_>; 2] = [
        File { path: "simcloud", mode: 0o755, content: b"ELF" },
        File { path: "etc/ssl/certs/a.crt", mode: 0o644, content: b"PEM" },
    ];

    #[test]
    fn the_same_files_give_the_same_bytes() {
        let one = layer(&FILES).unwrap();
        let mut turned = FILES;
        turned.reverse();
        assert_eq!(one, layer(&turned).unwrap());
        // Equal on every host: these digests change only with the inputs of all images.
        assert_eq!(one.unpacked, 6);
        assert_eq!(one.blob[..10], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255]);
        let other = File { content: b"elf", ..FILES[0] };
        assert_ne!(one.diff_id, layer(&[other, FILES[1]]).unwrap().diff_id);
    }

    #[test]
    fn layer_is_independent_of_this_host() {
        let layer = layer(&FILES).unwrap();
        let mut archive = Vec::new();
        flate2::read::GzDecoder::new(layer.blob.as_slice()).read_to_end(&mut archive).unwrap();
        assert_eq!(digest(&archive), layer.diff_id);
        assert_eq!(archive, tar(&FILES).unwrap());
        let mut entries = Vec::new();
        for entry in tar::Archive::new(archive.as_slice()).entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!((header.mtime().unwrap(), header.uid().unwrap(), header.gid().unwrap()), (0, 0, 0));
            entries.push((String::from_utf8_lossy(&entry.path_bytes()).into_owned(), header.mode().unwrap()));
        }
        let expected = [
            ("etc/", 0o755),
            ("etc/ssl/", 0o755),
            ("etc/ssl/certs/", 0o755),
            ("etc/ssl/certs/a.crt", 0o644),
            ("simcloud", 0o755),
        ];
        assert_eq!(entries, expected.map(|(path, mode)| (path.to_owned(), mode)));
    }

    #[test]
    fn digests_are_sha256() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(digest(b""), empty);
    }

    #[test]
    fn ca_certificates_are_written_as_pem() {
        let roots = roots();
        assert!(roots.matches("-----BEGIN CERTIFICATE-----\n").count() > 100);
        assert!(!roots.contains('\r'));
    }
}
