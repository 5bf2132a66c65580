//! Builds the SBOM of an image or a program in SPDX 2.3. It lists the crates linked into the program, the code that Rust and the C compiler
//! add, and the CA certificates of an image. Crates that only builds or tests use are left out, because the program does not contain them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use serde_json::{Value, json};

use super::about::{About, Image};
use super::arch::Arch;
use super::layer;
use super::manifest::put;

/// The format of a crate in the output of `cargo tree --prefix depth`.
pub(crate) const FORMAT: &str = "|{p}|{l}|";

/// The SPDX ID of the CA certificates.
const AUTHORITIES: &str = "SPDXRef-mozilla-ca-certificates";

type Id = (String, String);

#[derive(Debug, Default)]
struct Crate {
    licence: String,
    /// Checksum of the crate's file on crates.io; crates of this workspace have none.
    checksum: Option<String>,
    needs: BTreeSet<Id>,
}

/// The crates of a program, and which of them is the root.
#[derive(Debug)]
pub(crate) struct Parts {
    root: Id,
    crates: BTreeMap<Id, Crate>,
}

/// Versions of the other linked code, if they are known.
#[derive(Debug, Default)]
pub(crate) struct Toolchain {
    pub(crate) std: Option<String>,
    pub(crate) glibc: Option<String>,
    pub(crate) gcc: Option<String>,
}

/// Parses the output of `cargo tree`, and takes the checksums from Cargo.lock.
pub(crate) fn parts(tree: &str, lock: &str) -> anyhow::Result<Parts> {
    let checksums = checksums(lock);
    let mut crates: BTreeMap<Id, Crate> = BTreeMap::new();
    // The path of crates from the root of the tree to the current crate.
    let mut path: Vec<Id> = Vec::new();
    let mut root = None;
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let (depth, id, licence) =
            line_of_tree(line).with_context(|| format!("unexpected line of cargo tree: {line:?}"))?;
        path.truncate(depth);
        if let Some(above) = path.last().and_then(|above| crates.get_mut(above)) {
            above.needs.insert(id.clone());
        }
        let one = crates.entry(id.clone()).or_default();
        one.licence = licence;
        one.checksum = checksums.get(&id).cloned();
        root.get_or_insert_with(|| id.clone());
        path.push(id);
    }
    Ok(Parts { root: root.context("cargo tree printed nothing")?, crates })
}

fn line_of_tree(line: &str) -> Option<(usize, Id, String)> {
    let mut columns = line.split('|');
    let depth = columns.next()?.parse().ok()?;
    let mut package = columns.next()?.split(' ');
    let name = package.next()?.to_owned();
    let version = package.next()?.strip_prefix('v')?.to_owned();
    // Some crates use the syntax `MIT/Apache-2.0`, which is older than SPDX expressions.
    let licence = columns.next()?.split('/').map(str::trim).collect::<Vec<_>>().join(" OR ");
    Some((depth, (name, version), licence))
}

fn checksums(lock: &str) -> BTreeMap<Id, String> {
    let value = |part: &str, key: &str| {
        let found =
            part.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'));
        found.map(str::to_owned)
    };
    let package =
        |part: &str| Some(((value(part, "name")?, value(part, "version")?), value(part, "checksum")?));
    lock.split("[[package]]").filter_map(package).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// An image, which also contains the CA certificates.
    Image,
    /// A program without other files.
    Program,
}

#[derive(Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) form: Form,
    pub(crate) image: &'a Image,
    pub(crate) about: &'a About,
    pub(crate) arch: Arch,
    /// The digest of the program.
    pub(crate) binary: &'a str,
}

pub(crate) fn document(
    subject: &Subject<'_>,
    parts: &Parts,
    toolchain: &Toolchain,
) -> anyhow::Result<Vec<u8>> {
    let Subject { image, about, arch, .. } = subject;
    let name = format!("{}-{}-{arch}", image.name, about.tag);
    let (whole, root) = (subject.reference(), reference(&parts.root));
    let mut packages = vec![subject.package()];
    packages.extend(parts.crates.iter().map(|(id, one)| described(id, one)));
    let mut links = vec![link("SPDXRef-DOCUMENT", "DESCRIBES", whole), link(whole, "CONTAINS", &root)];
    for (id, one) in &parts.crates {
        links.extend(one.needs.iter().map(|needed| link(&reference(id), "DEPENDS_ON", &reference(needed))));
    }
    // Linked code that is not a crate.
    for (name, version, licence) in [
        ("rust-std", &toolchain.std, "MIT OR Apache-2.0"),
        ("glibc", &toolchain.glibc, "LGPL-2.1-or-later"),
        ("libgcc", &toolchain.gcc, "GPL-3.0-or-later WITH GCC-exception-3.1"),
    ] {
        let id = format!("SPDXRef-{name}");
        packages.push(package(&id, name, version.as_deref(), licence));
        links.push(link(&root, "STATIC_LINK", &id));
    }
    if subject.form == Form::Image {
        // The certificates have no version here, because the digest of their layer identifies them more precisely.
        packages.push(package(AUTHORITIES, "mozilla-ca-certificates", None, "CDLA-Permissive-2.0"));
        links.push(link(whole, "CONTAINS", AUTHORITIES));
    }
    let mut document = json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "creationInfo": {
            "created": about.created.to_string(),
            "creators": [concat!("Tool: cargo-xtask-images-", env!("CARGO_PKG_VERSION"))],
        },
        "packages": packages,
        "relationships": links,
    });
    // The name contains the digest of the content, so that equal builds have equal documents, and different documents have different names.
    let digest = layer::digest(document.to_string().as_bytes());
    let namespace = format!("https://cloudadapter.dev/spdx/{name}-{}", hash(&digest));
    put(&mut document, "documentNamespace", namespace.into());
    let mut text = serde_json::to_vec_pretty(&document).context("cannot write JSON")?;
    text.push(b'\n');
    Ok(text)
}

fn hash(digest: &str) -> &str {
    digest.trim_start_matches("sha256:")
}

fn package(id: &str, name: &str, version: Option<&str>, licence: &str) -> Value {
    let mut package = json!({
        "SPDXID": id,
        "name": name,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": false,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": if licence.is_empty() { "NOASSERTION" } else { licence },
        "copyrightText": "NOASSERTION",
    });
    if let Some(version) = version {
        put(&mut package, "versionInfo", version.into());
    }
    package
}

impl Subject<'_> {
    fn reference(&self) -> &'static str {
        match self.form {
            Form::Image => "SPDXRef-Image",
            Form::Program => "SPDXRef-Program",
        }
    }

    fn package(&self) -> Value {
        let Self { image, about, binary, .. } = self;
        let mut whole = package(self.reference(), image.name, Some(&about.tag), "Apache-2.0");
        put(&mut whole, "description", image.description.into());
        match self.form {
            Form::Image => {
                put(&mut whole, "primaryPackagePurpose", "CONTAINER".into());
                let binary = format!("The binary /{} has this SHA-256: {}", image.name, hash(binary));
                put(&mut whole, "comment", binary.into());
            }
            Form::Program => {
                put(&mut whole, "primaryPackagePurpose", "APPLICATION".into());
                let checksum = json!([{ "algorithm": "SHA256", "checksumValue": hash(binary) }]);
                put(&mut whole, "checksums", checksum);
            }
        }
        whole
    }
}

fn described(id: &Id, one: &Crate) -> Value {
    let (name, version) = id;
    let mut package = package(&reference(id), name, Some(version), &one.licence);
    put(&mut package, "primaryPackagePurpose", "LIBRARY".into());
    // Only crates from crates.io get an address. Crates of this workspace are not published, and scanners must not confuse them with crates
    // of the same name.
    if let Some(checksum) = &one.checksum {
        let address = format!("https://static.crates.io/crates/{name}/{name}-{version}.crate");
        put(&mut package, "downloadLocation", address.into());
        put(&mut package, "checksums", json!([{ "algorithm": "SHA256", "checksumValue": checksum }]));
        let purl = format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"));
        let known = json!([{ "referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl }]);
        put(&mut package, "externalRefs", known);
    }
    package
}

/// SPDX IDs may have only letters, digits, `.` and `-`. No crate has a `.` in its name.
fn reference((name, version): &Id) -> String {
    format!("SPDXRef-crate-{}-{}", name.replace('_', "."), version.replace(['+', '_'], "."))
}

fn link(from: &str, kind: &str, to: &str) -> Value {
    json!({ "spdxElementId": from, "relationshipType": kind, "relatedSpdxElement": to })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::super::about::IMAGES;
    use super::super::about::tests::about;
    use super::super::build;
    use super::{Arch, Form, Subject, Toolchain, document, parts};
    use crate::cargo;

    const TREE: &str = "0|simcloud v0.1.0 (/src)|Apache-2.0|\n1|serde_json v1.0.1+x|MIT/Apache-2.0|\n\
                        2|itoa v1.0.0|MIT|\n1|itoa v1.0.0|MIT|\n1|serde_json v1.0.1+x|MIT/Apache-2.0| (*)\n";
    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"itoa\"\nversion = \"1.0.0\"\n\
                        source = \"registry+https://github.com/rust-lang/crates.io-index\"\nchecksum = \"ab\"\n";

    fn written(tree: &str, lock: &str) -> Value {
        written_as(Form::Image, tree, lock)
    }

    fn written_as(form: Form, tree: &str, lock: &str) -> Value {
        let toolchain = Toolchain { std: Some("1.95.0".to_owned()), ..Toolchain::default() };
        let parts = parts(tree, lock).unwrap();
        let subject =
            Subject { form, image: &IMAGES[5], about: &about(""), arch: Arch::Amd64, binary: "sha256:00" };
        let text = document(&subject, &parts, &toolchain).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    fn names(document: &Value) -> BTreeSet<&str> {
        document["packages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|package| package["name"].as_str().unwrap())
            .collect()
    }

    fn judge(document: &Value) {
        for key in ["spdxVersion", "dataLicense", "SPDXID", "name", "documentNamespace"] {
            assert!(document[key].is_string(), "{key}");
        }
        assert!(document["creationInfo"]["created"].as_str().unwrap().ends_with('Z'));
        let mut ids = BTreeSet::from(["SPDXRef-DOCUMENT"]);
        for package in document["packages"].as_array().unwrap() {
            for key in ["SPDXID", "name", "downloadLocation", "licenseDeclared"] {
                assert!(!package[key].as_str().unwrap().is_empty(), "{package}");
            }
            let id = package["SPDXID"].as_str().unwrap();
            let rest = id.strip_prefix("SPDXRef-").unwrap();
            assert!(rest.chars().all(|c| c.is_ascii_alphanumeric() || ".-".contains(c)), "{id}");
            assert!(ids.insert(id), "duplicate ID {id}");
        }
        for link in document["relationships"].as_array().unwrap() {
            for end in ["spdxElementId", "relatedSpdxElement"] {
                assert!(ids.contains(link[end].as_str().unwrap()), "{link}");
            }
        }
    }

    #[test]
    fn crates_have_licence_checksum_and_dependencies() {
        let document = written(TREE, LOCK);
        judge(&document);
        assert_eq!(
            names(&document),
            BTreeSet::from([
                "glibc",
                "itoa",
                "libgcc",
                "mozilla-ca-certificates",
                "rust-std",
                "serde_json",
                "simcloud"
            ])
        );
        let package = |name: &str| {
            document["packages"].as_array().unwrap().iter().rfind(|one| one["name"] == name).unwrap()
        };
        assert_eq!(package("serde_json")["licenseDeclared"], "MIT OR Apache-2.0");
        assert_eq!(package("itoa")["checksums"][0]["checksumValue"], "ab");
        assert_eq!(package("itoa")["externalRefs"][0]["referenceLocator"], "pkg:cargo/itoa@1.0.0");
        assert!(package("simcloud")["externalRefs"].is_null());
        let needs = document["relationships"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|link| link["relationshipType"] == "DEPENDS_ON");
        let needs: Vec<_> = needs
            .map(|link| [&link["spdxElementId"], &link["relatedSpdxElement"]].map(|id| id.as_str().unwrap()))
            .collect();
        let [root, json, itoa] =
            ["simcloud-0.1.0", "serde.json-1.0.1.x", "itoa-1.0.0"].map(|id| format!("SPDXRef-crate-{id}"));
        assert_eq!(needs, [[&json, &itoa], [&root, &itoa], [&root, &json]]);
    }

    #[test]
    fn program_has_its_checksum_and_no_ca_certificates() {
        let document = written_as(Form::Program, TREE, LOCK);
        judge(&document);
        assert!(!names(&document).contains("mozilla-ca-certificates"), "{document}");
        let program = &document["packages"][0];
        let said = ["name", "primaryPackagePurpose"].map(|key| program[key].as_str().unwrap());
        assert_eq!(said, ["simcloud", "APPLICATION"]);
        assert_eq!(program["checksums"][0]["checksumValue"], "00");
        assert_eq!(document["relationships"][0]["relatedSpdxElement"], program["SPDXID"]);
    }

    #[test]
    fn unexpected_output_of_cargo_is_refused() {
        assert!(parts("", "").unwrap_err().to_string().contains("nothing"));
        assert!(parts("error: x\n", "").unwrap_err().to_string().contains("error: x"));
    }

    #[test]
    fn only_linked_crates_are_listed() {
        let lock = std::fs::read_to_string(cargo::root().join("Cargo.lock")).unwrap();
        let tree = build::tree(&IMAGES[0], Arch::Amd64).unwrap();
        let document = written(&tree, &lock);
        judge(&document);
        let names = names(&document);
        for linked in ["node-controller", "tokio", "aws-lc-sys"] {
            assert!(names.contains(linked), "{linked}");
        }
        // None of these is part of the program: dependencies of tests, another package, a macro, a build script, and a crate for another
        // system.
        for other in ["proptest", "xtask", "serde_derive", "cc", "windows-sys", "adapter-sim"] {
            assert!(!names.contains(other), "{other}");
        }
    }
}
