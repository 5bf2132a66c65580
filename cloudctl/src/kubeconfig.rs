//! Finds and merges kubeconfigs as kubectl does. An error names the line of an invalid file, but does not quote it, because the file
//! contains secrets.

use std::{
    env,
    path::{Path, PathBuf},
};

use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};

use crate::{errors::chain, http::plain};

const NAME_ONE: &str = "with --kubeconfig or KUBECONFIG";

/// Why the API server cannot be reached.
#[derive(Debug)]
pub(crate) enum Unconnected {
    /// A flag has an invalid value.
    Usage(String),
    /// The address is not configured.
    Missing(String),
}

/// Reads the configuration from flags and environment, as kubectl does. In a pod without a kubeconfig, it comes from the pod's
/// ServiceAccount.
pub(crate) async fn config(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Config, Unconnected> {
    let read = match kubeconfig {
        Some(file) => read(file).map_err(|why| Unconnected::Usage(format!("--kubeconfig {why}")))?,
        None => match of_environment() {
            Ok(read) => read,
            Err(why) => return without_kubeconfig(&why, context),
        },
    };
    check(&read, context)?;
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(read, &options).await;
    config.map_err(|error| Unconnected::Missing(fault(&error)))
}

/// Checks that there is a context to use.
fn check(read: &Kubeconfig, context: Option<&str>) -> Result<(), Unconnected> {
    let known: Vec<&str> = read.contexts.iter().map(|it| it.name.as_str()).collect();
    let list = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    let current = read.current_context.as_deref().filter(|it| !it.is_empty());
    match (context, current) {
        (Some(context), _) if !known.contains(&context) => Err(Unconnected::Usage(format!(
            "--context {context}: the kubeconfig has no such context; it has: {list}"
        ))),
        (None, None) if known.is_empty() => Err(Unconnected::Missing(format!(
            "the kubeconfig has no contexts, so it names no API server: choose another file {NAME_ONE}"
        ))),
        (None, None) => Err(Unconnected::Missing(format!(
            "the kubeconfig has no current context: choose one with --context; it has: {list}"
        ))),
        _ => Ok(()),
    }
}

/// Merges the files in `KUBECONFIG`, or reads the file in the home directory. As in kubectl, missing files are skipped, unless all are
/// missing.
fn of_environment() -> Result<Kubeconfig, String> {
    let list = env::var_os("KUBECONFIG").unwrap_or_default();
    let mut files: Vec<PathBuf> = env::split_paths(&list).filter(|it| !it.as_os_str().is_empty()).collect();
    if files.is_empty() {
        files.push(env::home_dir().ok_or("the home directory is not known")?.join(".kube/config"));
    }
    if files.iter().any(|file| file.exists()) {
        files.retain(|file| file.exists());
    }
    files.iter().try_fold(Kubeconfig::default(), |all, file| {
        all.merge(read(file)?).map_err(|error| format!("{}: {}", file.display(), fault(&error)))
    })
}

fn without_kubeconfig(why: &str, context: Option<&str>) -> Result<Config, Unconnected> {
    if context.is_none()
        && let Ok(config) = Config::incluster()
    {
        return Ok(config);
    }
    Err(Unconnected::Missing(format!("{why}: choose a kubeconfig {NAME_ONE}")))
}

fn read(file: &Path) -> Result<Kubeconfig, String> {
    Kubeconfig::read_from(file).map_err(|error| format!("{}: {}", file.display(), fault(&error)))
}

/// Formats the error without the parser's own text, which quotes surrounding lines and values.
fn fault(error: &KubeconfigError) -> String {
    if let KubeconfigError::Parse(error) = error {
        let location = error.location();
        let location = location.map(|at| format!(": see line {}, column {}", at.line(), at.column()));
        return format!("is not a valid kubeconfig{}", location.unwrap_or_default());
    }
    if let KubeconfigError::ReadConfig(source, _path) = error {
        return format!("cannot be read: {}", plain(source));
    }
    chain(error)
}
