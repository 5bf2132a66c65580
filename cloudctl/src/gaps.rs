//! Finds shards that no status page covers. If no replica that was read holds a shard, an empty page proves nothing about the shard's
//! objects.

use telemetry::report::ControllerStatus;

use crate::{options::Component, session::Page};

/// Returns why these pages may not show all objects of this controller, one line for each reason.
pub(crate) fn gaps(component: Component, pages: &[Page<ControllerStatus>]) -> Vec<String> {
    let name = component.name();
    let its = || pages.iter().filter(|it| it.process.component == component);
    let shards = its().map(|it| it.content.shards).max().unwrap_or_default();
    if shards == 0 {
        return vec![format!("no replica that was read holds a shard of {name}")];
    }
    let unheld = (0..shards).filter(|shard| !its().any(|it| it.content.held.contains(shard)));
    let unheld = unheld.map(|shard| format!("no replica that was read holds shard {shard} of {name}"));
    let at_work = its().filter(|it| !it.content.held.is_empty());
    let unlisted = at_work.filter_map(|it| {
        let why = match it.content.listed {
            Some(true) => return None,
            Some(false) => "has not listed everything yet",
            None => "is older than this cloudctl, and does not report whether it has listed everything",
        };
        Some(format!("{name} {}: {why}", it.process.name))
    });
    unheld.chain(unlisted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Process;

    fn page(held: &[u32], shards: u32, listed: Option<bool>) -> Page<ControllerStatus> {
        let content = ControllerStatus { shards, held: held.to_vec(), listed, ..ControllerStatus::default() };
        Page { process: Process::fake(Component::ServiceController, "sc"), content }
    }

    #[test]
    fn a_page_without_shards_proves_nothing() {
        let of = |pages: &[Page<ControllerStatus>]| gaps(Component::ServiceController, pages);
        let (known, unheld) = (Some(true), "no replica that was read holds shard");
        assert_eq!(of(&[page(&[0], 2, known), page(&[1], 2, known), page(&[], 2, Some(false))]), [""; 0]);
        assert_eq!(of(&[page(&[], 1, known)]), [format!("{unheld} 0 of service-controller")]);
        assert_eq!(of(&[page(&[0], 2, known)]), [format!("{unheld} 1 of service-controller")]);
        assert_eq!(of(&[]), ["no replica that was read holds a shard of service-controller"]);
        let unlisted = of(&[page(&[0], 1, Some(false))]);
        assert_eq!(unlisted, ["service-controller sc: has not listed everything yet"]);
        assert!(of(&[page(&[0], 1, None)]).concat().contains("is older than this cloudctl"));
        let other = gaps(Component::NodeController, &[page(&[0], 1, known)]);
        assert_eq!(other, ["no replica that was read holds a shard of node-controller"]);
    }
}
