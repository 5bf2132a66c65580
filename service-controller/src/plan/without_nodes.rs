//! Explains why a load balancer has no nodes behind it. This module is pure.

use std::fmt;

use controller_core::selector::Selector;

use super::{
    annotations::{place_of_selector, settings::Defaults},
    left_out::{Counts, LeftOut},
    service::Service,
    targets::Targets,
};

/// Why a load balancer has no nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WithoutNodes {
    /// No node matches the selector, which is set at this place.
    Unmatched { place: String, selector: Selector },
    /// The last valid settings use only node ports that the Service released.
    PortsReleased,
    /// Each node has one of these causes. Empty: the cluster has no nodes.
    LeftOut(Counts),
}

impl WithoutNodes {
    /// Returns the cause, if there are no targets.
    pub(crate) fn of(targets: &Targets, service: &Service, defaults: &Defaults) -> Option<Self> {
        if targets.len() > 0 {
            return None;
        }
        let counts = &targets.left_out;
        Some(match &targets.selector {
            Some(selector) if selector.is_nothing() => Self::PortsReleased,
            Some(selector) if counts.keys().eq([&LeftOut::Unselected]) => {
                Self::Unmatched { place: place_of_selector(service, defaults), selector: selector.clone() }
            }
            Some(_) | None => Self::LeftOut(counts.clone()),
        })
    }

    /// The message of the condition.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Unmatched { .. } => self.to_string(),
            Self::PortsReleased | Self::LeftOut(_) => format!("no node can serve: {self}"),
        }
    }
}

impl fmt::Display for WithoutNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unmatched { place, selector } => write!(f, "no node matches {place}: {selector}"),
            Self::PortsReleased => {
                f.write_str("the last valid settings use only node ports removed from the Service")
            }
            Self::LeftOut(counts) if counts.is_empty() => f.write_str("the cluster has no nodes"),
            Self::LeftOut(counts) => {
                let mut counts: Vec<_> = counts.iter().collect();
                counts.sort_by_key(|(_, number)| std::cmp::Reverse(**number));
                let words = counts.into_iter().map(|(cause, number)| {
                    let nodes = if *number == 1 { "node" } else { "nodes" };
                    format!("{number} {nodes} {cause}")
                });
                f.write_str(&words.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::targets::Node;

    fn excluded(name: &str) -> Node {
        Node { exclude: Some("true".to_owned()), ..Node::testing(name) }
    }

    fn cause(nodes: &[Node], selector: Option<&Selector>) -> Option<String> {
        let targets = Targets::of(nodes, selector);
        WithoutNodes::of(&targets, &Service::default(), &Defaults::default()).map(|it| it.message())
    }

    // Behaviour: S13
    #[test]
    fn causes_are_counted_most_frequent_first() {
        assert_eq!(cause(&[Node::testing("a"), excluded("b")], None), None, "one node serves");
        let texts = [
            cause(&[], None),
            cause(&[excluded("a"), excluded("b")], None),
            cause(
                &[
                    Node { provider_id: None, ..Node::testing("a") },
                    Node { addresses: Vec::new(), ..Node::testing("b") },
                    Node { deleting: true, ..Node::testing("c") },
                    Node { leaving: true, ..Node::testing("d") },
                    Node { addresses: Vec::new(), ..Node::testing("e") },
                ],
                None,
            ),
        ];
        insta::assert_snapshot!(texts.map(Option::unwrap).join("\n"), @r"
        no node can serve: the cluster has no nodes
        no node can serve: 2 nodes excluded by label node.kubernetes.io/exclude-from-external-load-balancers
        no node can serve: 2 nodes without an internal address, 1 node being deleted, 1 node with taint ToBeDeletedByClusterAutoscaler, 1 node without a provider ID
        ");
    }

    // Behaviour: S13
    #[test]
    fn selector_without_nodes_is_named_with_its_place() {
        let selector = Selector::read("zone=mars").unwrap();
        let on_mars = Node { labels: [("zone".to_owned(), "mars".to_owned())].into(), ..excluded("m") };
        let by_default = {
            let mut defaults = Defaults::default();
            defaults.set("node-selector", "zone=mars").unwrap();
            let targets = Targets::of(&[Node::testing("a")], Some(&selector));
            WithoutNodes::of(&targets, &Service::default(), &defaults).map(|it| it.message())
        };
        let of_service = {
            let key = super::super::annotations::keys::NODE_SELECTOR;
            let annotations = [(key.to_string(), "zone=mars".to_owned())].into();
            let service = Service { annotations, ..Service::default() };
            let targets = Targets::of(&[Node::testing("a")], Some(&selector));
            WithoutNodes::of(&targets, &service, &Defaults::default()).map(|it| it.message())
        };
        let texts = [of_service, by_default, cause(&[Node::testing("a"), on_mars], Some(&selector))];
        insta::assert_snapshot!(texts.map(Option::unwrap).join("\n"), @r"
        no node matches annotation lb.cloudadapter.dev/node-selector: zone=mars
        no node matches cluster default node-selector: zone=mars
        no node can serve: 1 node not matched by node-selector, 1 node excluded by label node.kubernetes.io/exclude-from-external-load-balancers
        ");
    }
}
