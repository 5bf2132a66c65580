//! `cargo xtask manifests`: renders the chart to plain manifests, for users without Helm. Each file begins with the steps to use it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::cargo;
use crate::step::say;
use crate::tool::Tool;

const CHART: &str = "helm/cloud-controllers";
/// The folder with the values files. Each values file becomes one output file.
const BUNDLES: &str = "helm/manifests";
const NAMESPACE: &str = "kube-system";

#[derive(Debug, clap::Args)]
#[command(
    about = "Renders the chart to plain manifests, for use without Helm",
    long_about = "Renders the chart to plain manifests, for use without Helm: one file for each \
    values file of helm/manifests, or for each of your own values files. Each file begins with the steps \
    to do before its use.",
    after_help = "Examples:\n  \
                  cargo xtask manifests --registry registry.example\n  \
                  cargo xtask manifests --values mine.yaml --output out"
)]
pub(crate) struct Args {
    /// Prefix of the images' names, the same as the chart's image.registry
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    registry: String,
    /// Values file to use instead of those in helm/manifests; may be given several times
    #[arg(long, value_name = "FILE")]
    values: Vec<PathBuf>,
    /// Folder of the manifests
    #[arg(long, value_name = "FOLDER", default_value = "dist/manifests")]
    output: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    for path in write(&args.registry, &args.values, &args.output)? {
        say(&format!("wrote {}", path.display()));
    }
    Ok(())
}

/// Writes one file of manifests for each of these values files, and returns the paths. If none is given, the files in helm/manifests are
/// used.
pub(crate) fn write(registry: &str, values: &[PathBuf], output: &Path) -> anyhow::Result<Vec<PathBuf>> {
    fs::create_dir_all(output)
        .with_context(|| format!("cannot make {}; choose another --output", output.display()))?;
    let values = if values.is_empty() { bundles()? } else { values.to_vec() };
    let mut written = Vec::new();
    for values in &values {
        let name =
            values.file_name().with_context(|| format!("--values {}: no such file", values.display()))?;
        let path = output.join(name).with_extension("yaml");
        let rendered = rendered(values, registry)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let text = format!("{}{rendered}", header(&name, &rendered));
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        written.push(path);
    }
    Ok(written)
}

fn bundles() -> anyhow::Result<Vec<PathBuf>> {
    let folder = cargo::root().join(BUNDLES);
    let files = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files = files.map(|file| Ok(file?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}

/// Renders the chart with Helm, without the chart's tests.
fn rendered(values: &Path, registry: &str) -> anyhow::Result<String> {
    let values = std::path::absolute(values)?;
    let mut helm = Command::new(Tool::Helm.get()?);
    helm.args([
        "template",
        "cloud-controllers",
        CHART,
        "--namespace",
        NAMESPACE,
        "--no-hooks",
        "--skip-tests",
    ]);
    if !registry.is_empty() {
        helm.arg("--set-string").arg(format!("image.registry={registry}"));
    }
    helm.arg("--values").arg(values);
    let output = helm.current_dir(cargo::root()).output().context("cannot start helm")?;
    if !output.status.success() {
        bail!("the chart does not render: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns the header of the file: the steps that a user must do before these manifests work.
fn header(file: &str, manifests: &str) -> String {
    let mut steps = Vec::new();
    if let Some(secret) = credentials(manifests) {
        let file = if manifests.contains("--clouds-file=") { "clouds.yaml" } else { "token" };
        steps.push(format!(
            "Create a Secret with the credentials of the cloud:\n\
             kubectl --namespace {NAMESPACE} create secret generic {secret} --from-file={file}"
        ));
    }
    steps.push(format!(
        "Apply the manifests; the kubelets must run with --cloud-provider=external:\nkubectl apply --filename {file}"
    ));
    let mut header =
        "# The chart cloud-controllers as plain manifests, by `cargo xtask manifests`.\n".to_owned();
    for (n, step) in steps.iter().enumerate() {
        let (what, commands) = step.split_once('\n').unwrap_or((step.as_str(), ""));
        header.push_str(&format!("# {}. {what}\n", n + 1));
        for line in commands.lines() {
            header.push_str(&format!("#      {line}\n"));
        }
    }
    header
}

/// Returns the Secret with the cloud's credentials that the adapter mounts, unless it is part of the manifests.
fn credentials(manifests: &str) -> Option<&str> {
    // `find_map` skips the volume mount, which has the same name as the volume.
    let mut volumes = manifests.split("- name: credentials\n").skip(1);
    let secret = volumes.find_map(|volume| volume.trim_start().strip_prefix("secret:\n"))?;
    let name = secret.lines().find_map(|line| line.trim().strip_prefix("secretName: "))?.trim_matches('"');
    let made = |document: &str| {
        let has = |wanted: &str| document.lines().any(|line| line == wanted);
        has("kind: Secret") && has(&format!("  name: {name}"))
    };
    (!manifests.split("\n---\n").any(made)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::{bundles, header};

    const MOUNTED: &str = "          - --clouds-file=/var/run/secrets/cloud/clouds.yaml
          volumeMounts:
            - name: credentials
              mountPath: /var/run/secrets/cloud
      volumes:
        - name: credentials
          secret:
            secretName: \"mine\"
            defaultMode: 0440
";

    #[test]
    fn each_bundle_begins_with_its_steps() {
        let numbered = |line: &&str| line.trim_start_matches("# ").starts_with(|c: char| c.is_ascii_digit());
        let steps = |manifests: &str| header("a.yaml", manifests).lines().filter(numbered).count();
        assert_eq!(steps("kind: Service"), 1, "it is only applied");
        assert_eq!(steps(MOUNTED), 2);
        let header = header("a.yaml", MOUNTED);
        assert!(header.lines().all(|line| line.starts_with('#')), "{header}");
        assert!(header.ends_with("kubectl apply --filename a.yaml\n"), "{header}");
    }

    #[test]
    fn credentials_are_requested_unless_included() {
        let asked = |manifests: &str| {
            let header = header("a.yaml", manifests);
            header.lines().find_map(|line| line.split_once("secret generic ").map(|(_, it)| it.to_owned()))
        };
        assert_eq!(asked(MOUNTED).as_deref(), Some("mine --from-file=clouds.yaml"));
        let token = MOUNTED.replace("--clouds-file", "--token-file");
        assert_eq!(asked(&token).as_deref(), Some("mine --from-file=token"));
        let made = "kind: Secret\nmetadata:\n  name: mine\nstringData:\n  clouds.yaml: x";
        assert_eq!(asked(&format!("{made}\n---\n{MOUNTED}")), None);
        assert_eq!(asked("kind: Service"), None);
    }

    #[test]
    fn each_adapter_has_a_bundle() {
        let names = bundles().unwrap().into_iter().map(|path| path.file_stem().unwrap().to_owned());
        assert_eq!(names.collect::<Vec<_>>(), ["openstack", "sim"]);
    }
}
