//! How a program is built, and the name of the result in the cache.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::tool::Tool;

/// All inputs of a build, except the Go compiler.
#[derive(Debug)]
pub(crate) struct Recipe {
    pub(crate) tool: Tool,
    /// The folder of the Go module that pins the version.
    pub(crate) module: PathBuf,
    digest: String,
}

impl Recipe {
    /// Reads the pins of a program. A changed pin or linker flag changes the digest.
    pub(crate) fn read(tool: Tool, modules: &Path) -> Result<Self, Error> {
        let module = modules.join(tool.module());
        let mut hasher = Sha256::new();
        for file in ["go.mod", "go.sum"] {
            let path = module.join(file);
            hasher.update(fs::read(&path).map_err(|source| Error::Io {
                what: "cannot read",
                path,
                source,
            })?);
        }
        hasher.update(tool.package());
        hasher.update(tool.ldflags());
        let digest = hasher.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { tool, module, digest })
    }

    /// The directory name in the cache, such as `helm-v4.3.1-0f3a5c7e9b12`.
    pub(crate) fn slot(&self) -> String {
        format!("{}-{}-{}", self.tool, self.tool.version(), self.digest)
    }

    /// The path that the executable has in the cache, whether or not it exists there.
    pub(crate) fn executable(&self, cache: &Path) -> PathBuf {
        cache.join(self.slot()).join(self.tool.name())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{Recipe, Tool};

    #[test]
    fn versions_in_the_code_are_the_pinned_ones() {
        let modules = Path::new(env!("CARGO_MANIFEST_DIR"));
        let cases = [
            (Tool::Etcd, "go.etcd.io/etcd/server/v3"),
            (Tool::KubeApiserver, "k8s.io/kubernetes"),
            (Tool::Kubectl, "k8s.io/kubernetes"),
            (Tool::Helm, "helm.sh/helm/v4"),
            (Tool::KubeControllerManager, "k8s.io/kubernetes"),
            (Tool::KubeScheduler, "k8s.io/kubernetes"),
            (Tool::Kubelet, "k8s.io/kubernetes"),
            (Tool::KubeProxy, "k8s.io/kubernetes"),
            (Tool::Containerd, "github.com/containerd/containerd/v2"),
            (Tool::ContainerdShim, "github.com/containerd/containerd/v2"),
            (Tool::Ctr, "github.com/containerd/containerd/v2"),
            (Tool::Cosign, "github.com/sigstore/cosign/v3"),
            (Tool::Crane, "github.com/google/go-containerregistry"),
        ];
        for (tool, module) in cases {
            let pins = fs::read_to_string(modules.join(tool.module()).join("go.mod")).unwrap();
            let wanted = format!("{module} {}", tool.version());
            assert!(
                pins.lines().any(|line| line.trim().starts_with(&wanted)),
                "go.mod does not pin `{wanted}`"
            );
            assert!(pins.contains(tool.package()), "go.mod has no `tool {}`", tool.package());
        }
    }

    #[test]
    fn changed_pin_changes_the_cache_folder() {
        let dir = tempfile::tempdir().unwrap();
        let module = dir.path().join("etcd");
        fs::create_dir(&module).unwrap();
        fs::write(module.join("go.mod"), "module a").unwrap();
        fs::write(module.join("go.sum"), "").unwrap();
        let before = Recipe::read(Tool::Etcd, dir.path()).unwrap().slot();
        fs::write(module.join("go.sum"), "example.org/a v1.0.0 h1:x").unwrap();
        let after = Recipe::read(Tool::Etcd, dir.path()).unwrap().slot();

        assert!(before.starts_with("etcd-v3.6.8-"), "{before}");
        assert_ne!(before, after);
    }
}
