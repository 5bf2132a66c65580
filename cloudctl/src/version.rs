//! `cloudctl version`: shows the versions of the program, the adapter and the controllers.

use clap::Args;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use telemetry::report::{AdapterStatus, ControllerStatus};

use crate::{
    missing::Missing,
    options::{Common, Component},
    output::{Report, Table, TextOutput},
    session::{Page, Session, Usage},
    words::or_nothing,
};

/// Flags of `cloudctl version`.
#[derive(Args, Clone, Debug)]
pub(crate) struct VersionArgs {
    /// Print only the version of cloudctl, and read nothing
    #[arg(long)]
    client: bool,
}

/// The versions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionReport {
    /// The version of cloudctl.
    pub client: String,
    /// The versions of the replicas of the adapter and of the controllers.
    pub processes: Vec<ProcessVersion>,
    /// What could not be read.
    pub missing: Vec<Missing>,
}

/// The version of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessVersion {
    /// The component, such as `service-controller`.
    pub component: String,
    /// The name of the process's pod, or the address of its pages.
    pub process: String,
    /// The version.
    pub version: String,
}

pub(crate) async fn read(
    common: &Common,
    args: &VersionArgs,
    now: Timestamp,
) -> Result<VersionReport, Usage> {
    let client = env!("CARGO_PKG_VERSION").to_owned();
    if args.client {
        return Ok(VersionReport { client, ..VersionReport::default() });
    }
    let components = [&[Component::CloudAdapter][..], &Component::CONTROLLERS].concat();
    let mut session = Session::open(common, &components, now).await?;
    let adapters = session.pages::<AdapterStatus>(&[Component::CloudAdapter], "/status.json").await;
    let controllers = session.pages::<ControllerStatus>(&Component::CONTROLLERS, "/status").await;
    let adapters = adapters.iter().map(|it| of_process(it, &it.content.version));
    let processes = adapters.chain(controllers.iter().map(|it| of_process(it, &it.content.version)));
    Ok(VersionReport { client, processes: processes.collect(), missing: session.lacks() })
}

fn of_process<T>(page: &Page<T>, version: &str) -> ProcessVersion {
    ProcessVersion {
        component: page.process.component.name().to_owned(),
        process: page.process.name.clone(),
        version: version.to_owned(),
    }
}

impl Report for VersionReport {
    fn show(&self, paper: &mut TextOutput) {
        paper.line(format!("cloudctl {}", self.client));
        if self.processes.is_empty() {
            return;
        }
        paper.gap();
        let mut table = Table::new(&["COMPONENT", "REPLICA", "VERSION"]);
        for it in &self.processes {
            table.row([
                it.component.as_str().into(),
                it.process.as_str().into(),
                or_nothing(&it.version).into(),
            ]);
        }
        paper.table(&table, 0);
    }

    fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// Different versions are in order: an update replaces one replica after the other.
    fn is_well(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        output::{Format, written},
        session::Process,
    };

    #[test]
    fn the_client_comes_before_the_processes() {
        let process = Process::fake(Component::CloudAdapter, "ca");
        let page = Page { process, content: AdapterStatus::default() };
        let processes = vec![of_process(&page, "0.2.0")];
        let report = VersionReport { client: "0.1.0".to_owned(), processes, ..VersionReport::default() };
        insta::assert_snapshot!(written(&report, Format::Table, false).expect("written"), @r"
        cloudctl 0.1.0

        COMPONENT      REPLICA  VERSION
        cloud-adapter  ca       0.2.0
        ");
    }
}
