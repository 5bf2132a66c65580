//! The manifest with which krew installs `cloudctl` as the plugin `cloud` of kubectl. It lists the archives of the release with their URLs and
//! checksums.
//!
//! Source: <https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/>

use crate::images::arch::Arch;

/// The program in the archive. krew links it as `kubectl-cloud`.
pub(super) const PROGRAM: &str = "cloudctl";
/// The name of the plugin: `kubectl cloud`.
const PLUGIN: &str = "cloud";

#[derive(Debug)]
pub(super) struct Archive {
    pub(super) arch: Arch,
    pub(super) file: String,
    pub(super) sha256: String,
}

/// Returns the manifest. `downloads` is the URL of the folder with the archives.
pub(super) fn manifest(version: &str, home: &str, downloads: &str, archives: &[Archive]) -> String {
    let mut text = format!(
        "apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: {PLUGIN}
spec:
  version: v{version}
  homepage: {home}
  shortDescription: Shows what the cloud controllers do
  description: |
    Shows the state of the cloud controllers and of their adapter: which Services, nodes and routes wait, for what, and what would be changed.
  platforms:
"
    );
    for Archive { arch, file, sha256 } in archives {
        text.push_str(&format!(
            "    - selector:
        matchLabels:
          os: linux
          arch: {arch}
      uri: {downloads}/{file}
      sha256: {sha256}
      bin: {PROGRAM}
"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Archive, manifest};
    use crate::cargo;
    use crate::images::arch::Arch;

    #[test]
    fn each_architecture_has_its_archive() {
        let archives = Arch::ALL.map(|arch| Archive {
            arch,
            file: format!("cloudctl-0.2.0-linux-{arch}.tar.gz"),
            sha256: format!("sum-{arch}"),
        });
        let text = manifest("0.2.0", "https://a.example", "https://a.example/v0.2.0", &archives);
        assert!(text.contains("  version: v0.2.0\n"), "{text}");
        for arch in ["amd64", "arm64"] {
            let wanted = format!(
                "          arch: {arch}\n      uri: https://a.example/v0.2.0/cloudctl-0.2.0-linux-{arch}.tar.gz\n      \
                 sha256: sum-{arch}\n      bin: cloudctl\n"
            );
            assert!(text.contains(&wanted), "{text}");
        }
    }

    #[test]
    fn plugin_has_the_name_that_the_page_names() {
        let page = std::fs::read_to_string(cargo::root().join("docs/cloudctl.md")).unwrap();
        let text = manifest("0.2.0", "", "", &[]);
        let name = text.lines().find_map(|line| line.strip_prefix("  name: ")).unwrap();
        assert!(page.contains(&format!("`kubectl {name}`")), "{name}");
    }
}
