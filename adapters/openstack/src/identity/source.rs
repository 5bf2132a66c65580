//! The source of a cloud's keys: the environment, or clouds.yaml with a secure.yaml in the same folder.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};

use super::{
    cloud::{Cloud, Given},
    keys::Keys,
};

/// The environment variables of the process, some of which are secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Environment(BTreeMap<String, String>);

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Environment").finish_non_exhaustive()
    }
}

impl FromIterator<(String, String)> for Environment {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(variables: I) -> Self {
        Self(variables.into_iter().collect())
    }
}

impl Environment {
    /// An empty variable counts as unset.
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn keys(&self) -> Keys {
        Keys::of_environment(self.0.iter().map(|(name, value)| (name.as_str(), value.as_str())))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Source {
    /// The environment, with `OS_AUTH_URL`, `OS_USERNAME` and so on.
    Environment(Environment),
    Files(Files),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Files {
    clouds: PathBuf,
    /// The path of secure.yaml in the same folder. This file contains only secrets.
    secure: PathBuf,
    /// The name of the cloud in the file. `None` means that the file must define only one cloud.
    cloud: Option<String>,
}

impl Source {
    /// Selects the source. If a cloud is named (`--cloud`, `OS_CLOUD`) or `--clouds-file` is set, the source is clouds.yaml. Otherwise, the
    /// source is the environment if it contains `OS_AUTH_URL`, and else clouds.yaml. Without `--clouds-file`, the path of clouds.yaml is
    /// `OS_CLIENT_CONFIG_FILE` or one of the usual places.
    pub(crate) fn find(
        cloud: Option<&str>,
        file: Option<&Path>,
        environment: &Environment,
    ) -> Result<Self, String> {
        let cloud = cloud.or_else(|| environment.get("OS_CLOUD"));
        if cloud.is_none() && file.is_none() && environment.get("OS_AUTH_URL").is_some() {
            return Ok(Self::Environment(environment.clone()));
        }
        let clouds = match file.or_else(|| environment.get("OS_CLIENT_CONFIG_FILE").map(Path::new)) {
            Some(file) => file.to_owned(),
            None => usual(environment)?,
        };
        let secure = clouds.with_file_name("secure.yaml");
        Ok(Self::Files(Files { clouds, secure, cloud: cloud.map(str::to_owned) }))
    }

    pub(crate) fn read(&self, given: &Given) -> Result<Cloud, String> {
        match self {
            Self::Environment(environment) => {
                Cloud::read(environment.keys(), given).map_err(|faults| faults.join("\n"))
            }
            Self::Files(files) => {
                let clouds = fs::read(&files.clouds).map_err(|error| named(&files.clouds, &error))?;
                files.read(&clouds, &files.secrets()?, given)
            }
        }
    }

    /// Reads the configuration. `content` replaces the content of the watched file.
    pub(crate) fn read_with(&self, content: &[u8], given: &Given) -> Result<Cloud, String> {
        match self {
            Self::Files(files) if self.followed().as_ref() == Some(&files.clouds) => {
                files.read(content, &files.secrets()?, given)
            }
            Self::Files(files) => {
                let clouds = fs::read(&files.clouds).map_err(|error| named(&files.clouds, &error))?;
                files.read(&clouds, content, given)
            }
            Self::Environment(_) => self.read(given),
        }
    }

    /// Returns the file to watch, which is the file with the secrets. Returns `None` if the source is not a file.
    pub(crate) fn followed(&self) -> Option<PathBuf> {
        match self {
            Self::Environment(_) => None,
            Self::Files(files) if files.secure.exists() => Some(files.secure.clone()),
            Self::Files(files) => Some(files.clouds.clone()),
        }
    }
}

impl Files {
    fn secrets(&self) -> Result<Vec<u8>, String> {
        match fs::read(&self.secure) {
            Ok(content) => Ok(content),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(named(&self.secure, &error)),
        }
    }

    fn read(&self, clouds: &[u8], secrets: &[u8], given: &Given) -> Result<Cloud, String> {
        let place = self.clouds.display();
        let mut all = section(&self.clouds, clouds)?;
        merge(&mut all, section(&self.secure, secrets)?);
        let Some(Value::Object(mut clouds)) = all.remove("clouds") else {
            return Err(format!("{place}: has no section clouds"));
        };
        let names = || clouds.keys().cloned().collect::<Vec<_>>().join(", ");
        let name = match &self.cloud {
            Some(name) => name.clone(),
            None if clouds.len() == 1 => names(),
            None => {
                return Err(format!(
                    "{place}: has several clouds: select one with adapter.openstack.cloud of the chart (--cloud) or OS_CLOUD: {}",
                    names()
                ));
            }
        };
        let names = names();
        let Some(Value::Object(cloud)) = clouds.remove(&name) else {
            return Err(format!(
                "{place}: has no cloud {name}, only {names}: select one with adapter.openstack.cloud of the chart (--cloud) or OS_CLOUD"
            ));
        };
        let reported = |faults: Vec<String>| {
            faults.iter().map(|fault| format!("{place}: {fault}")).collect::<Vec<_>>().join("\n")
        };
        Cloud::read(Keys::of_cloud(&name, cloud), given).map_err(reported)
    }
}

/// Returns the path of clouds.yaml in one of the usual folders. Source: openstacksdk, "Configuration Files".
fn usual(environment: &Environment) -> Result<PathBuf, String> {
    let home = environment.get("HOME").map(PathBuf::from);
    let configuration = environment.get("XDG_CONFIG_HOME").map(PathBuf::from);
    let configuration = configuration.or_else(|| Some(home?.join(".config")));
    let folders = [
        Some(PathBuf::new()),
        configuration.map(|folder| folder.join("openstack")),
        Some("/etc/openstack".into()),
    ];
    let files: Vec<PathBuf> =
        folders.into_iter().flatten().map(|folder| folder.join("clouds.yaml")).collect();
    files.iter().find(|file| file.exists()).cloned().ok_or_else(|| {
        let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        let files = files.join(", ");
        format!(
            "no credentials: none of {files} exists. Name a file with --clouds-file, or set \
             OS_AUTH_URL and related variables"
        )
    })
}

/// Errors do not quote the content, because it includes secrets.
fn section(path: &Path, content: &[u8]) -> Result<Map<String, Value>, String> {
    let text = str::from_utf8(content).map_err(|error| named(path, &error))?;
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    match serde_saphyr::from_str(text) {
        Ok(Value::Object(section)) => Ok(section),
        Ok(_) => Err(named(path, &"must be YAML with a section clouds")),
        Err(error) => {
            let place = error.location().map_or_else(String::new, |at| format!(" in line {}", at.line()));
            Err(named(path, &format!("invalid YAML{place}")))
        }
    }
}

/// Merges two sections; values of `other` take precedence.
fn merge(all: &mut Map<String, Value>, other: Map<String, Value>) {
    for (key, value) in other {
        match (all.get_mut(&key), value) {
            (Some(Value::Object(mine)), Value::Object(theirs)) => merge(mine, theirs),
            (_, value) => {
                all.insert(key, value);
            }
        }
    }
}

fn named(path: &Path, what: &dyn fmt::Display) -> String {
    format!("{}: {what}", path.display())
}
