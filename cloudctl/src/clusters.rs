//! `cloudctl clusters`: the clusters whose objects the adapter sees in the cloud, according to their owner tags.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use telemetry::report::{AdapterStatus, ClusterObjects};

use crate::{
    missing::Missing,
    options::{Common, Component},
    output::{Cell, Report, Table, TextOutput, TextStyle},
    session::{Page, Session, Usage},
};

/// The owners of the objects in the cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClustersReport {
    /// Time at which the adapter's status page was read.
    pub at: Timestamp,
    /// The clusters, with the adapter's own cluster first.
    pub clusters: Vec<ClusterObjects>,
    /// What could not be read.
    pub missing: Vec<Missing>,
}

pub(crate) async fn read(common: &Common, now: Timestamp) -> Result<ClustersReport, Usage> {
    let mut session = Session::open(common, &[Component::CloudAdapter], now).await?;
    let pages = session.pages::<AdapterStatus>(&[Component::CloudAdapter], "/status.json").await;
    if !pages.is_empty() && !pages.iter().any(|it| it.content.leader) {
        let why = "no replica that was read is the leader, and a standby has no listings";
        session.missing.push(Missing::new(Component::CloudAdapter.name(), why));
    }
    Ok(ClustersReport { missing: session.lacks(), ..report(now, pages) })
}

/// Builds the report from the leader's page.
fn report(now: Timestamp, pages: Vec<Page<AdapterStatus>>) -> ClustersReport {
    let leader = pages.into_iter().map(|it| it.content).find(|it| it.leader);
    let mut clusters = leader.map(|it| it.clusters).unwrap_or_default();
    clusters.sort_by(|a, b| b.own.cmp(&a.own).then_with(|| a.cluster_id.cmp(&b.cluster_id)));
    ClustersReport { at: now, clusters, missing: Vec::new() }
}

impl Report for ClustersReport {
    fn show(&self, paper: &mut TextOutput) {
        if self.clusters.is_empty() {
            if self.missing.is_empty() {
                paper.line("No objects of any cluster are listed.");
            }
            return;
        }
        let mut table = Table::new(&["CLUSTER ID", "OWNER", "LOAD BALANCERS", "ROUTES"]);
        for it in &self.clusters {
            let whose = match (it.own, it.cluster_id.is_empty()) {
                (true, _) => Cell::new(TextStyle::Good, "this cluster"),
                (false, true) => Cell::new(TextStyle::Dim, "without tags"),
                (false, false) => "another".into(),
            };
            let id = if it.cluster_id.is_empty() { crate::words::NOTHING } else { &it.cluster_id };
            table.row([id.into(), whose, it.load_balancers.into(), it.routes.into()]);
        }
        paper.table(&table, 0);
    }

    fn names(&self) -> Vec<String> {
        self.clusters.iter().map(|it| it.cluster_id.clone()).filter(|id| !id.is_empty()).collect()
    }

    fn missing(&self) -> &[Missing] {
        &self.missing
    }

    fn is_well(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::{
        output::{Format, written},
        session::Process,
    };

    fn cluster(id: &str, own: bool) -> ClusterObjects {
        ClusterObjects { cluster_id: id.to_owned(), own, load_balancers: 3, routes: 7 }
    }

    fn of(leader: bool) -> ClustersReport {
        let clusters = vec![cluster("", false), cluster("other", false), cluster("zzz", true)];
        let content = AdapterStatus { leader, clusters, ..AdapterStatus::default() };
        let process = Process::fake(Component::CloudAdapter, "ca");
        report(Timestamp::UNIX_EPOCH, vec![Page { process, content }])
    }

    #[test]
    fn the_own_cluster_comes_first() {
        assert_snapshot!(written(&of(true), Format::Table, false).expect("written"), @r"
        CLUSTER ID  OWNER         LOAD BALANCERS  ROUTES
        zzz         this cluster  3               7
        -           without tags  3               7
        other       another       3               7
        ");
    }

    #[test]
    fn listings_of_a_standby_are_ignored() {
        assert_eq!(of(false).clusters, []);
    }
}
