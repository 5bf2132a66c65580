//! Volumes as directories, and the paths that point into them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, KeyToPath, PodSpec, Secret, Volume};
use kube::{Api, Client};

/// The directories of a pod's volumes, by the volumes' names.
pub(crate) type Volumes = BTreeMap<String, PathBuf>;

/// From where a container sees a volume to where it is. Longest first, so that nested mounts are found.
#[derive(Debug, Default)]
pub(crate) struct Mounts(Vec<(String, PathBuf)>);

/// Writes the volumes of a pod below `dir`. ConfigMaps and Secrets are copied once: later changes are not followed.
pub(crate) async fn materialise(
    client: &Client,
    namespace: &str,
    pod: &PodSpec,
    dir: &Path,
) -> anyhow::Result<Volumes> {
    let mut volumes = Volumes::new();
    for volume in pod.volumes.iter().flatten() {
        let to = dir.join("volumes").join(&volume.name);
        fs::create_dir_all(&to).with_context(|| format!("cannot create {}", to.display()))?;
        for (file, content) in files(client, namespace, volume).await? {
            ensure!(
                !file.contains('/'),
                "volume {}: {file:?} is in a directory, which is not done here",
                volume.name
            );
            let path = to.join(file);
            fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        }
        volumes.insert(volume.name.clone(), to);
    }
    Ok(volumes)
}

impl Mounts {
    pub(crate) fn new(mounts: impl IntoIterator<Item = (String, PathBuf)>) -> Self {
        let mut mounts: Vec<_> = mounts.into_iter().collect();
        mounts.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        Self(mounts)
    }

    /// Points a path in an argument or a variable into the volume's directory: `--config=/etc/app/config.yaml`.
    pub(crate) fn point(&self, text: &str) -> String {
        for (mount, dir) in &self.0 {
            for (at, _) in text.match_indices(mount.as_str()) {
                let (before, rest) = text.split_at(at);
                let after = rest.strip_prefix(mount.as_str()).unwrap_or_default();
                let begins = before.is_empty() || before.ends_with(['=', ',', ':']);
                let ends = after.is_empty() || after.starts_with(['/', ',', ':']);
                if begins && ends {
                    return format!("{before}{}{}", dir.display(), self.point(after));
                }
            }
        }
        text.to_owned()
    }
}

type Files = BTreeMap<String, Vec<u8>>;

async fn files(client: &Client, namespace: &str, volume: &Volume) -> anyhow::Result<Files> {
    if let Some(source) = &volume.config_map {
        let objects: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let object = objects.get_opt(&source.name).await?;
        let object =
            object.with_context(|| format!("volume {}: no ConfigMap {}", volume.name, source.name))?;
        let text = object.data.into_iter().flatten().map(|(key, text)| (key, text.into_bytes()));
        let binary = object.binary_data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0));
        return select(text.chain(binary).collect(), source.items.as_deref());
    }
    if let Some(source) = &volume.secret {
        let name = source.secret_name.as_deref().unwrap_or_default();
        let objects: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let object = objects.get_opt(name).await?;
        let object = object.with_context(|| format!("volume {}: no Secret {name}", volume.name))?;
        let files = object.data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0));
        return select(files.collect(), source.items.as_deref());
    }
    if volume.empty_dir.is_some() {
        return Ok(Files::new());
    }
    bail!("volume {}: only configMap, secret and emptyDir are done here", volume.name)
}

/// All keys, or those that are asked for, under the names that are asked for.
fn select(files: Files, items: Option<&[KeyToPath]>) -> anyhow::Result<Files> {
    let Some(items) = items else { return Ok(files) };
    let pick = |item: &KeyToPath| {
        let content = files.get(&item.key).with_context(|| format!("there is no key {}", item.key))?;
        Ok((item.path.clone(), content.clone()))
    };
    items.iter().map(pick).collect()
}

#[cfg(test)]
mod tests {
    use super::{Mounts, PathBuf};

    #[test]
    fn paths_lead_into_the_volume() {
        let mounts = Mounts::new([
            ("/etc/app".to_owned(), PathBuf::from("/t/app")),
            ("/etc/app/keys".to_owned(), PathBuf::from("/t/keys")),
        ]);
        let cases = [
            ("a file", "--config=/etc/app/config.yaml", "--config=/t/app/config.yaml"),
            ("the directory", "/etc/app", "/t/app"),
            ("a nested mount", "--key=/etc/app/keys/a", "--key=/t/keys/a"),
            ("two paths", "/etc/app/a:/etc/app/b", "/t/app/a:/t/app/b"),
            ("a longer name", "--config=/etc/application/a", "--config=/etc/application/a"),
            ("the middle of a path", "/opt/etc/app/a", "/opt/etc/app/a"),
        ];
        for (name, text, wanted) in cases {
            assert_eq!(mounts.point(text), wanted, "{name}");
        }
    }
}
