//! Searches the API server for evidence that something in the cloud belongs to this cluster. Without such evidence, a move to another scope
//! of the cloud loses nothing, and the controller follows the adapter by itself.
//!
//! The search reads the API server and not the mirrors, since a mirror may lag behind this process's own last write.

use std::{fmt, future::Future, pin::Pin};

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};

use crate::{
    kube_api::{self, any},
    node::{TrimmedNode, UNINITIALISED, has_taint, provider_id},
};

type Found = Pin<Box<dyn Future<Output = Result<bool, kube_api::Error>> + Send>>;
type Search = Box<dyn Fn() -> Found + Send + Sync>;

/// The searches of a controller, in addition to the search for initialised nodes.
#[derive(Default)]
pub(super) struct Evidence(Vec<Search>);

impl fmt::Debug for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Evidence").field("searches", &self.0.len()).finish()
    }
}

impl Evidence {
    pub(super) fn add<F>(&mut self, search: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<bool, kube_api::Error>> + Send + 'static,
    {
        self.0.push(Box::new(move || Box::pin(search())));
    }

    /// Whether any search finds evidence. Cost: usually one page of Nodes; if there is no evidence, all objects that are searched.
    pub(super) async fn exists(&self, kube: &Client) -> Result<bool, kube_api::Error> {
        if any(&Api::all(kube.clone()), |TrimmedNode(node)| is_initialised(node)).await? {
            return Ok(true);
        }
        for search in &self.0 {
            if search().await? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether the node is bound to an instance. A provider ID cannot be changed. A node that still has the taint is not in use yet.
fn is_initialised(node: &Node) -> bool {
    provider_id(node).is_some() && !has_taint(node, UNINITIALISED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeKube, Fault, Verb, node};

    async fn exists(kube: &FakeKube, found: bool) -> Result<bool, kube_api::Error> {
        let mut evidence = Evidence::default();
        evidence.add(move || async move { Ok(found) });
        evidence.exists(&kube.client()).await
    }

    #[tokio::test(start_paused = true)]
    async fn initialised_nodes_and_own_searches_are_evidence() {
        let new = node("a").uninitialised();
        for (nodes, found, expected) in [
            (vec![], false, false),
            (vec![], true, true),
            (vec![new.clone(), node("hybrid")], false, false),
            (vec![new.clone().provider_id("sim://r/i-1")], false, false),
            (vec![new, node("b").provider_id("sim://r/i-2")], false, true),
            (vec![node("c").provider_id("not a provider ID")], false, true),
        ] {
            let kube = FakeKube::new();
            nodes.iter().for_each(|node| kube.put::<Node>(node.clone()));
            assert_eq!(exists(&kube, found).await.expect("no fault"), expected, "{nodes:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn evidence_on_a_later_page_is_found() {
        let kube = FakeKube::new();
        (0..700).for_each(|n| kube.put::<Node>(node(&format!("n{n:03}")).uninitialised()));
        assert!(!exists(&kube, false).await.expect("no fault"));
        kube.put::<Node>(node("z").provider_id("sim://r/i-1"));
        assert!(exists(&kube, false).await.expect("no fault"));
    }

    #[tokio::test(start_paused = true)]
    async fn failed_search_proves_nothing() {
        let kube = FakeKube::new();
        kube.order(Fault::status(500).on(Verb::List, "nodes"));
        assert!(exists(&kube, false).await.is_err());
    }
}
