//! What the documentation tells its readers to type where pods run: logs, forwarded ports, rollouts, and the pages of the processes.

use anyhow::ensure;
use e2e::docs::{Terminal, pages};
use e2e::{binaries, service};
use serde_json::json;

use crate::bed::{Bed, NAMESPACE, scenario};

/// Who left nothing but a load balancer, for the page of the orphans.
const ORPHAN: [(&str, &str); 2] =
    [("ORPHAN", "6a8975f6-5934-407a-a36e-79ce71b9ee0d"), ("SERVICE", "default/kept")];

#[test]
fn what_pages_say_of_pods_works() {
    scenario(2, async |bed| {
        bed.install(&json!({})).await?;
        bed.until_initialised().await?;
        service("web").port(80).create(&bed.client).await?;
        bed.address("web").await?;
        let pages = pages("cluster")?;
        ensure!(pages.len() >= 20, "of how many pages are there commands? {}", pages.len());
        let mut faults = Vec::new();
        for page in pages {
            // A page may change the release.
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
