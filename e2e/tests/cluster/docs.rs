//! Runs the commands of the documentation that need running pods: logs, forwarded ports, rollouts, and the pages of the processes.

use anyhow::ensure;
use e2e::docs::{Terminal, pages};
use e2e::{binaries, service};
use serde_json::json;

use crate::bed::{Bed, NAMESPACE, scenario};

/// The UID and the name of a former Service, for the page about orphans.
const ORPHAN: [(&str, &str); 2] =
    [("ORPHAN", "6a8975f6-5934-407a-a36e-79ce71b9ee0d"), ("SERVICE", "default/kept")];

#[test]
fn commands_of_pages_about_pods_work() {
    scenario(2, async |bed| {
        bed.install(&json!({})).await?;
        bed.until_initialised().await?;
        service("web").port(80).create(&bed.client).await?;
        bed.address("web").await?;
        let pages = pages("cluster")?;
        ensure!(pages.len() >= 20, "number of pages with commands: {}", pages.len());
        let mut faults = Vec::new();
        for page in pages {
            // The previous page may have changed the release.
            rolled_out(bed).await?;
            faults.extend(terminal(bed)?.type_in(&page).await?);
            bed.step(&format!("{}: {} commands", page.path, page.commands.len()));
        }
        ensure!(faults.is_empty(), "{}", faults.join("\n\n"));
        Ok(())
    });
}

fn terminal(bed: &Bed) -> anyhow::Result<Terminal> {
    let terminal = bed.terminal()?;
    terminal.alias("cloudctl", &binaries()?.join("cloudctl").display().to_string())?;
    Ok(ORPHAN.iter().fold(terminal, |terminal, (name, value)| terminal.with(name, value)))
}

async fn rolled_out(bed: &Bed) -> anyhow::Result<()> {
    let ours = "app.kubernetes.io/instance=cloud-controllers";
    let args =
        ["rollout", "status", "deployment", "--namespace", NAMESPACE, "--selector", ours, "--timeout=2m"];
    bed.kubectl(&args).await.map(drop)
}
