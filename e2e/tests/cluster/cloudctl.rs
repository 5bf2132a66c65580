//! Tests `cloudctl` as a user runs it. It reads pages through kubelets, with exactly the rights in the documentation.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::{Context, ensure};
use cloudctl::{ExplainReport, OrphansReport, PlanReport, StatusReport};
use e2e::{binaries, eventually, kubeconfig_with_token, publish_endpoint, service};
use serde::de::DeserializeOwned;
use serde_json::json;
use telemetry::report::State;
use tokio::process::Command;

use crate::bed::{Bed, NAMESPACE, WITHIN, chart, scenario, tell};

/// The user that reads, as in the manifest of the documentation.
const READER: &str = "cloudctl";

async fn cloudctl(kubeconfig: &Path, args: &[&str]) -> anyhow::Result<Output> {
    let program = binaries()?.join("cloudctl");
    let mut command = Command::new(&program);
    command.arg("--kubeconfig").arg(kubeconfig).args(args).kill_on_drop(true);
    command.output().await.with_context(|| format!("cannot start {}", program.display()))
}

/// Prints the output of `cloudctl`, so that it is visible in the log of the test.
async fn show(kubeconfig: &Path, args: &[&str]) -> anyhow::Result<()> {
    let said = cloudctl(kubeconfig, args).await?;
    tell(&format!("$ cloudctl {}\n{}", args.join(" "), String::from_utf8_lossy(&said.stdout)));
    Ok(())
}

/// Waits for a report that satisfies `look`, and returns the exit code.
async fn until<T: DeserializeOwned + std::fmt::Debug>(
    kubeconfig: &Path,
    args: &[&str],
    look: impl Fn(&T) -> bool,
) -> anyhow::Result<i32> {
    let args = [args, &["-o", "json"]].concat();
    eventually(&format!("cloudctl {args:?} prints the expected report"), WITHIN, || async {
        let said = cloudctl(kubeconfig, &args).await?;
        let error = String::from_utf8_lossy(&said.stderr).into_owned();
        let report: T = serde_json::from_slice(&said.stdout).context(error)?;
        ensure!(look(&report), "{report:#?}");
        said.status.code().context("a signal ended cloudctl")
    })
    .await
}

/// Applies the manifest of the documentation, and returns a kubeconfig with its rights.
async fn reader(bed: &Bed) -> anyhow::Result<PathBuf> {
    let page = chart().join("../../docs/cloudctl.md");
    let page = fs::read_to_string(&page).with_context(|| format!("cannot read {}", page.display()))?;
    let manifest = page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next());
    let file = bed.layout().home.join("reader.yaml");
    fs::write(&file, manifest.context("the page has no manifest")?)?;
    bed.kubectl(&["apply", "--filename", &file.display().to_string()]).await?;
    bed.kubectl(&["create", "serviceaccount", READER, "--namespace", NAMESPACE]).await?;
    let account = format!("--serviceaccount={NAMESPACE}:{READER}");
    let everywhere = "--clusterrole=cloudctl";
    bed.kubectl(&["create", "clusterrolebinding", READER, everywhere, &account]).await?;
    let here = "--role=cloudctl";
    bed.kubectl(&["create", "rolebinding", READER, here, &account, "--namespace", NAMESPACE]).await?;
    kubeconfig(bed, READER).await
}

/// The administrator's kubeconfig, with the token of a ServiceAccount.
async fn kubeconfig(bed: &Bed, account: &str) -> anyhow::Result<PathBuf> {
    let token = bed.kubectl(&["create", "token", account, "--namespace", NAMESPACE]).await?;
    let file = bed.layout().home.join(format!("{account}.kubeconfig"));
    kubeconfig_with_token(&bed.layout().kubeconfig(), &token, &file)?;
    Ok(file)
}

#[test]
fn cloudctl_reads_pages_of_pods_with_the_documented_rights() {
    scenario(2, async |bed| {
        bed.install(&json!({ "serviceController": { "shards": 2, "replicas": 2 } })).await?;
        bed.until_initialised().await?;
        service("web").port(80).create(&bed.client).await?;
        publish_endpoint(&bed.client, "web", true).await?;
        bed.address("web").await?;
        let reader = reader(bed).await?;
        let code = until::<StatusReport>(&reader, &["status"], |it| {
            it.missing.is_empty() && it.troubles.is_empty() && it.controllers.len() == 4
        });
        ensure!(code.await? == 0, "all is well");
        let settled = |it: &ExplainReport| {
            it.missing.is_empty() && it.explanations.iter().all(|it| it.page.state == State::Settled)
        };
        let code = until::<ExplainReport>(&reader, &["explain", "service", "default/web"], |it| {
            settled(it) && it.events.iter().any(|it| it.reason == "EnsuredLoadBalancer")
        });
        ensure!(code.await? == 0, "the Service is served");
        bed.step("cloudctl has read all pods");
        let code =
            until::<PlanReport>(&reader, &["plan"], |it| it.missing.is_empty() && it.objects.is_empty());
        ensure!(code.await? == 0, "nothing is left to do");
        let code = until::<OrphansReport>(&reader, &["orphans"], |it| it.missing.is_empty());
        ensure!(code.await? == 0, "every load balancer has its Service");
        for args in [&["status"][..], &["explain", "service", "default/web"], &["plan"], &["clusters"]] {
            show(&reader, args).await?;
        }
        without_rights(bed).await
    });
}

/// A ServiceAccount that may only list pods.
async fn without_rights(bed: &Bed) -> anyhow::Result<()> {
    bed.kubectl(&["create", "role", "looks", "--verb=list", "--resource=pods", "--namespace", NAMESPACE])
        .await?;
    let account = format!("--serviceaccount={NAMESPACE}:default");
    let args = ["create", "rolebinding", "looks", "--role=looks", &account, "--namespace", NAMESPACE];
    bed.kubectl(&args).await?;
    let pods_only = kubeconfig(bed, "default").await?;
    let code = until::<StatusReport>(&pods_only, &["status"], |it| {
        let forbidden =
            it.missing.iter().filter(|it| it.why.contains("needs get and create on pods/portforward"));
        forbidden.count() == 5 && it.missing.iter().any(|it| it.source == "leases")
    });
    ensure!(code.await? == 1, "something is missing");
    show(&pods_only, &["status"]).await
}
