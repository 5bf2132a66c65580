//! The documents of an image according to the OCI image specification 1.1: a configuration and a manifest for each architecture, and one
//! index. Even an image for a single architecture has an index, so that adding an architecture does not change the image's name.

use std::collections::BTreeMap;

use anyhow::Context;
use serde_json::{Value, json};

use super::about::{About, Image};
use super::arch::Arch;
use super::layer::{File, Layer, digest};

/// The unprivileged user of the containers, the same as in the chart. The user need not exist on the node.
const USER: &str = "65532:65532";
/// Annotation of a manifest: the digest of NAME.ARCH.spdx.json.
const SBOM: &str = "images.cloudadapter.dev/spdx";

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// An image of one architecture.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) arch: Arch,
    pub(crate) layers: Vec<Layer>,
    pub(crate) sbom: String,
}

impl Built {
    /// Unpacked size of the image on a node.
    pub(crate) fn unpacked(&self) -> u64 {
        self.layers.iter().map(|layer| layer.unpacked).sum()
    }

    /// Download size for a node. Excludes the small documents.
    pub(crate) fn packed(&self) -> u64 {
        self.layers.iter().map(|layer| length(&layer.blob)).sum()
    }
}

/// An OCI layout in memory.
#[derive(Debug)]
pub(crate) struct Layout {
    files: BTreeMap<String, Vec<u8>>,
    /// The digest of the index, which identifies the image in registries and clusters.
    pub(crate) digest: String,
}

impl Layout {
    pub(crate) fn files(&self) -> Vec<File<'_>> {
        self.files.iter().map(|(path, content)| File { path, mode: 0o644, content }).collect()
    }

    fn blob(&mut self, kind: &str, content: Vec<u8>) -> Value {
        let digest = digest(&content);
        let described = json!({ "mediaType": kind, "digest": digest, "size": content.len() });
        self.files.insert(format!("blobs/{}", digest.replacen(':', "/", 1)), content);
        described
    }

    /// Adds the files `oci-layout` and `index.json`, from which tools find the only image.
    fn entry(&mut self, described: &Value) -> anyhow::Result<()> {
        let entry = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [described] });
        self.files.insert("index.json".to_owned(), bytes(&entry)?);
        self.files.insert("oci-layout".to_owned(), bytes(&json!({ "imageLayoutVersion": "1.0.0" }))?);
        Ok(())
    }
}

pub(crate) fn layout(image: &Image, about: &About, built: &[Built]) -> anyhow::Result<Layout> {
    let mut layout = Layout { files: BTreeMap::new(), digest: String::new() };
    let mut manifests = Vec::new();
    for one in built {
        let layers: Vec<_> = one.layers.iter().map(|layer| layout.blob(LAYER, layer.blob.clone())).collect();
        let config = layout.blob(CONFIG, bytes(&config(image, about, one))?);
        let mut annotations = about.labels(image);
        annotations.insert(SBOM.to_owned(), one.sbom.clone());
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers, "annotations": annotations,
        });
        let mut described = layout.blob(MANIFEST, bytes(&manifest)?);
        put(&mut described, "platform", json!({ "architecture": one.arch.name(), "os": "linux" }));
        manifests.push(described);
    }
    let index = json!({
        "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests, "annotations": about.labels(image),
    });
    let index = bytes(&index)?;
    layout.digest = digest(&index);
    let mut described = layout.blob(INDEX, index);
    // The first key is for containerd, the second for all other tools.
    let names = json!({
        "io.containerd.image.name": about.whole_name(image), "org.opencontainers.image.ref.name": about.tag,
    });
    put(&mut described, "annotations", names);
    layout.entry(&described)?;
    Ok(layout)
}

/// Returns the chart as an artifact that Helm installs from a registry. The same package always gives the same bytes, unlike with `helm
/// push`, which adds the time. `metadata` is Chart.yaml or a part of it, as JSON.
pub(crate) fn chart(metadata: &Value, package: &[u8], version: &str) -> anyhow::Result<Layout> {
    const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
    const PACKAGE: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
    let mut layout = Layout { files: BTreeMap::new(), digest: String::new() };
    let config = layout.blob(CONFIG, bytes(metadata)?);
    let layers = [layout.blob(PACKAGE, package.to_vec())];
    let manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers });
    let manifest = bytes(&manifest)?;
    layout.digest = digest(&manifest);
    let mut described = layout.blob(MANIFEST, manifest);
    put(&mut described, "annotations", json!({ "org.opencontainers.image.ref.name": version }));
    layout.entry(&described)?;
    Ok(layout)
}

fn config(image: &Image, about: &About, built: &Built) -> Value {
    let diff_ids: Vec<_> = built.layers.iter().map(|layer| &layer.diff_id).collect();
    let history: Vec<_> = built
        .layers
        .iter()
        .map(|_| json!({ "created": about.created.to_string(), "created_by": "cargo xtask images" }))
        .collect();
    json!({
        "created": about.created.to_string(),
        "architecture": built.arch.name(),
        "os": "linux",
        "config": {
            "User": USER,
            "Entrypoint": [format!("/{}", image.name)],
            "WorkingDir": "/",
            "Labels": about.labels(image),
        },
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
        "history": history,
    })
}

pub(crate) fn put(object: &mut Value, key: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert(key.to_owned(), value);
    }
}

/// Formats JSON with sorted keys and without spaces, so that the output is reproducible.
fn bytes(document: &Value) -> anyhow::Result<Vec<u8>> {
    serde_json::to_vec(document).context("cannot write JSON")
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::about::IMAGES;
    use super::super::about::tests::about;
    use super::super::layer::{self, File};
    use super::{Arch, Built, Layout, SBOM, layout};

    fn built(arch: Arch) -> Built {
        let binary = File { path: "simcloud", mode: 0o755, content: arch.name().as_bytes() };
        Built { arch, layers: vec![layer::layer(&[binary]).unwrap()], sbom: "sha256:5b".to_owned() }
    }

    fn parsed(layout: &Layout, path: &str) -> Value {
        serde_json::from_slice(&layout.files[path]).unwrap()
    }

    /// Returns the blob of a descriptor, and checks its size and digest.
    fn follow(layout: &Layout, descriptor: &Value) -> Vec<u8> {
        let digest = descriptor["digest"].as_str().unwrap();
        let blob = &layout.files[&format!("blobs/{}", digest.replace(':', "/"))];
        assert_eq!(layer::digest(blob), digest);
        assert_eq!(descriptor["size"], blob.len());
        blob.clone()
    }

    #[test]
    fn index_leads_to_each_program() {
        let built = [built(Arch::Amd64), built(Arch::Arm64)];
        let layout = layout(&IMAGES[5], &about("r.example"), &built).unwrap();
        assert_eq!(parsed(&layout, "oci-layout")["imageLayoutVersion"], "1.0.0");
        let entry = parsed(&layout, "index.json");
        let image = &entry["manifests"][0];
        assert_eq!(image["annotations"]["io.containerd.image.name"], "r.example/simcloud:0.1.0");
        assert_eq!(image["annotations"]["org.opencontainers.image.ref.name"], "0.1.0");
        assert_eq!(image["digest"], layout.digest);
        let index: Value = serde_json::from_slice(&follow(&layout, image)).unwrap();
        assert_eq!(index["manifests"].as_array().unwrap().len(), 2);
        for (one, described) in built.iter().zip(index["manifests"].as_array().unwrap()) {
            assert_eq!(described["platform"]["architecture"], one.arch.name());
            let manifest: Value = serde_json::from_slice(&follow(&layout, described)).unwrap();
            assert_eq!(manifest["annotations"][SBOM], "sha256:5b");
            assert_eq!(follow(&layout, &manifest["layers"][0]), one.layers[0].blob);
            let config: Value = serde_json::from_slice(&follow(&layout, &manifest["config"])).unwrap();
            assert_eq!(config["rootfs"]["diff_ids"][0], one.layers[0].diff_id);
            assert_eq!(config["architecture"], one.arch.name());
        }
        // The index, and for each architecture a manifest, a configuration and a layer.
        assert_eq!(layout.files.len(), 2 + 1 + 2 * 3);
    }

    #[test]
    fn program_runs_as_an_unprivileged_user() {
        let config = super::config(&IMAGES[5], &about(""), &built(Arch::Amd64));
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(config["config"]["Entrypoint"], serde_json::json!(["/simcloud"]));
        assert_eq!(config["config"]["Labels"]["org.opencontainers.image.revision"], "4b1f3c3");
        assert_eq!(config["created"], "2023-11-14T22:13:20Z");
    }

    #[test]
    fn images_are_reproducible_and_copies_keep_their_digest() {
        let write = |registry: &str| {
            let layout = layout(&IMAGES[5], &about(registry), &[built(Arch::Amd64)]).unwrap();
            (layer::tar(&layout.files()).unwrap(), layout.digest)
        };
        assert_eq!(write(""), write(""));
        assert_eq!(write("").1, write("r.example").1);
    }
}
