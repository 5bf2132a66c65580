//! Volumes as directories, and the paths that refer to them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use k8s_openapi::api::core::v1::{
    ConfigMap, KeyToPath, PodSpec, Secret, ServiceAccount, Volume, VolumeProjection,
};
use kube::{Api, Client};

use super::identity;

/// The directories of a pod's volumes, by the volumes' names.
pub(crate) type Volumes = BTreeMap<String, PathBuf>;

/// The volumes of a pod, and the key that is missing for them, if any.
#[derive(Debug)]
pub(crate) struct Materialised {
    pub(crate) volumes: Volumes,
    /// The first key that a Secret or ConfigMap does not have yet. A kubelet starts no container of the pod before the key exists.
    pub(crate) missing: Option<String>,
}

/// The paths of volumes in a container and on the host. The longest are first, so that nested mounts are found.
#[derive(Debug, Default)]
pub(crate) struct Mounts(Vec<(String, PathBuf)>);

/// Writes the volumes of a pod below `dir`, with new tokens. A repeated call updates the volumes, as a kubelet does periodically.
pub(crate) async fn materialise(
    client: &Client,
    namespace: &str,
    pod: &PodSpec,
    dir: &Path,
) -> anyhow::Result<Materialised> {
    let (mut volumes, mut missing) = (Volumes::new(), None);
    for volume in pod.volumes.iter().flatten() {
        let to = dir.join("volumes").join(&volume.name);
        fs::create_dir_all(&to).with_context(|| format!("cannot create {}", to.display()))?;
        // The pod itself writes to an emptyDir.
        if volume.empty_dir.is_none() {
            let files = files(client, namespace, pod, volume, &mut missing).await?;
            publish(&to, &files).with_context(|| format!("cannot write volume {}", volume.name))?;
        }
        volumes.insert(volume.name.clone(), to);
    }
    Ok(Materialised { volumes, missing })
}

/// Replaces all files at once, as a kubelet does: `..data` links to a directory with this version, and each file is a link through
/// `..data`.
fn publish(volume: &Path, files: &Files) -> anyhow::Result<()> {
    let (data, new) = (volume.join("..data"), volume.join("..new"));
    let old = fs::read_link(&data).ok();
    let version = tempfile::Builder::new().prefix("..version-").tempdir_in(volume)?.keep();
    for (file, content) in files {
        ensure!(!file.contains('/'), "{file:?} is in a directory, which is not supported here");
        fs::write(version.join(file), content)?;
    }
    symlink(version.file_name().context("the directory has no name")?, &new)?;
    fs::rename(&new, &data)?;
    for file in files.keys().map(|file| volume.join(file)).filter(|file| !file.is_symlink()) {
        // If the volume had another kind before, for example before a rollback, there may be a file of this name.
        fs::remove_file(&file).ok();
        symlink(Path::new("..data").join(file.file_name().unwrap_or_default()), file)?;
    }
    match old {
        Some(old) => Ok(fs::remove_dir_all(volume.join(old))?),
        None => Ok(()),
    }
}

impl Mounts {
    pub(crate) fn new(mounts: impl IntoIterator<Item = (String, PathBuf)>) -> Self {
        let mut mounts: Vec<_> = mounts.into_iter().collect();
        mounts.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        Self(mounts)
    }

    /// Translates a path in an argument or a variable, such as `--config=/etc/app/config.yaml`, into the volume's directory.
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

async fn files(
    client: &Client,
    namespace: &str,
    pod: &PodSpec,
    volume: &Volume,
    missing: &mut Option<String>,
) -> anyhow::Result<Files> {
    let name = &volume.name;
    let found = if let Some(source) = &volume.config_map {
        let all = config_map(client, namespace, &source.name).await;
        all.map(|files| select(files, source.items.as_deref(), missing))
    } else if let Some(source) = &volume.secret {
        let all = secret(client, namespace, source.secret_name.as_deref().unwrap_or_default()).await;
        all.map(|files| select(files, source.items.as_deref(), missing))
    } else if let Some(source) = &volume.projected {
        let mut files = Files::new();
        for source in source.sources.iter().flatten() {
            files.extend(
                projected(client, namespace, pod, source, missing)
                    .await
                    .with_context(|| format!("volume {name}"))?,
            );
        }
        Ok(files)
    } else {
        bail!("only configMap, secret, projected and emptyDir are supported here")
    };
    found.with_context(|| format!("volume {name}"))
}

async fn projected(
    client: &Client,
    namespace: &str,
    pod: &PodSpec,
    source: &VolumeProjection,
    missing: &mut Option<String>,
) -> anyhow::Result<Files> {
    if let Some(source) = &source.config_map {
        let all = config_map(client, namespace, &source.name).await?;
        return Ok(select(all, source.items.as_deref(), missing));
    }
    if let Some(source) = &source.secret {
        let all = secret(client, namespace, &source.name).await?;
        return Ok(select(all, source.items.as_deref(), missing));
    }
    let source = source.service_account_token.as_ref();
    let source = source.context("only configMap, secret and serviceAccountToken can be projected here")?;
    let account = pod.service_account_name.as_deref().unwrap_or("default");
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let audiences: Vec<_> = source.audience.as_deref().into_iter().collect();
    let token = identity::token(&accounts, account, &audiences).await?;
    Ok(Files::from([(source.path.clone(), token.into_bytes())]))
}

async fn config_map(client: &Client, namespace: &str, name: &str) -> anyhow::Result<Files> {
    let objects: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let object = objects.get_opt(name).await?.with_context(|| format!("cannot read ConfigMap {name}"))?;
    let text = object.data.into_iter().flatten().map(|(key, text)| (key, text.into_bytes()));
    let binary = object.binary_data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0));
    Ok(text.chain(binary).collect())
}

async fn secret(client: &Client, namespace: &str, name: &str) -> anyhow::Result<Files> {
    let objects: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let object = objects.get_opt(name).await?.with_context(|| format!("cannot read Secret {name}"))?;
    Ok(object.data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0)).collect())
}

/// Returns all keys, or the requested keys under their requested names. `missing` becomes the first requested key that is missing.
fn select(mut files: Files, items: Option<&[KeyToPath]>, missing: &mut Option<String>) -> Files {
    let Some(items) = items else { return files };
    let mut selected = Files::new();
    for item in items {
        match files.remove(&item.key) {
            Some(content) => drop(selected.insert(item.path.clone(), content)),
            None => *missing = missing.take().or_else(|| Some(item.key.clone())),
        }
    }
    selected
}

#[cfg(test)]
mod tests {
    use super::{Files, Mounts, PathBuf, fs, publish};

    #[test]
    fn volume_is_replaced_atomically() {
        let volume = tempfile::tempdir().unwrap();
        for content in ["old", "new"] {
            let files: Files = ["a", "b"].map(|file| (file.to_owned(), content.into())).into();
            publish(volume.path(), &files).unwrap();
            for file in ["a", "b"] {
                assert_eq!(fs::read_to_string(volume.path().join(file)).unwrap(), content);
            }
        }
        assert_eq!(fs::read_dir(volume.path()).unwrap().count(), 4, "two files, ..data and one version");
    }

    #[test]
    fn paths_are_translated_into_the_volume() {
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
