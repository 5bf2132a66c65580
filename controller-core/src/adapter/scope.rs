//! Checks that the adapter works in the part of the cloud (the scope) in which this controller has worked so far.
//!
//! An adapter that is started with another project's credentials finds none of this cluster's objects there. So their absence from the
//! listings proves nothing, and the controller would create duplicates. Therefore the controller changes nothing until the operator
//! confirms the move.

use std::sync::Arc;

use cloud_api_proto::{AdapterError, Reason, v1alpha1::Scope};
use tokio::sync::watch;

use crate::provider_id;

/// Compares the scopes that the adapter reports with the first reported scope. Cloning gives another handle to the same state.
#[derive(Clone, Debug, Default)]
pub struct ScopeGuard(Arc<watch::Sender<State>>);

#[derive(Clone, Debug, Default)]
struct State {
    known: Known,
    reported: Option<Mark>,
    /// The region that the adapter reported last. Empty: no region.
    region: String,
    /// What the operator can do to accept a move.
    remedy: String,
}

/// The scope that this controller works in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Known {
    /// No scope is stored; the first scope that the adapter reports applies.
    #[default]
    First,
    /// The scope is stored, but was not read yet.
    Unread,
    /// The store was read and is empty, so the scope that the adapter reports must be stored.
    Nothing,
    This(Mark),
}

/// A scope in one line: its fingerprint, then a description for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark(pub(crate) String);

impl Mark {
    /// `None`: the adapter reports no fingerprint.
    fn of(scope: &Scope) -> Option<Self> {
        let Scope { account, project, region, endpoint, fingerprint } = scope;
        let fields = [("account", account), ("project", project), ("region", region), ("at", endpoint)];
        let words = fields.iter().filter(|(_, value)| !value.is_empty());
        let words = words.fold(String::new(), |text, (name, value)| format!("{text} {name} {value}"));
        (!fingerprint.is_empty()).then(|| Self(format!("{fingerprint}{words}")))
    }

    fn fingerprint(&self) -> &str {
        self.0.split(' ').next().unwrap_or_default()
    }

    fn words(&self) -> &str {
        self.0.split_once(' ').map_or(self.0.as_str(), |(_, words)| words)
    }
}

impl ScopeGuard {
    /// Records the scope that the adapter reported. A report without a scope has no effect.
    pub(crate) fn report(&self, scope: Option<&Scope>) {
        let Some(scope) = scope else { return };
        self.0.send_if_modified(|state| {
            state.region.clone_from(&scope.region);
            false
        });
        let Some(mark) = Mark::of(scope) else { return };
        self.0.send_if_modified(|state| {
            if state.known == Known::First {
                state.known = Known::This(mark.clone());
            }
            let changes = state.reported.as_ref() != Some(&mark);
            state.reported = Some(mark);
            changes
        });
    }

    /// Returns the other form of the provider ID: with the adapter's region, or without a region. `None`: there is only one form, or the
    /// region is not known.
    #[must_use]
    pub fn other_form(&self, provider_id: &str) -> Option<String> {
        provider_id::other_form(provider_id, &self.0.borrow().region)
    }

    /// Declares that the scope is kept on a Lease. Nothing is changed until the kept scope has been read.
    pub(crate) fn is_kept(&self) {
        self.0.send_modify(|state| state.known = Known::Unread);
    }

    /// Sets the stored scope. Returns the scope to store if none was stored.
    pub(crate) fn read(&self, kept: Option<String>) -> Option<Mark> {
        self.0.send_if_modified(|state| {
            state.known = kept.map_or(Known::Nothing, |text| Known::This(Mark(text)));
            false
        });
        let state = self.0.borrow();
        if state.known == Known::Nothing { state.reported.clone() } else { None }
    }

    /// Sets the text that tells the operator how to accept a move.
    pub(crate) fn remedy(&self, text: String) {
        self.0.send_modify(|state| state.remedy = text);
    }

    /// Resolves when the adapter reports another scope.
    pub(crate) fn changes(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut states = self.0.subscribe();
        // The sender must live as long as this future.
        let this = self.clone();
        async move {
            let _lives = states.changed().await.is_ok();
            drop(this);
        }
    }

    /// Readiness: the adapter must not work in another scope.
    pub fn readiness(&self) -> Result<(), String> {
        let state = self.0.borrow();
        match (&state.known, &state.reported) {
            (Known::This(ours), Some(now)) if ours.fingerprint() != now.fingerprint() => Err(format!(
                "The cloud adapter now uses {0}, but this controller has worked in {1}. The \
                controller changes nothing in {0}. Restore the adapter's \
                previous credentials or, if the move is intended, {2}",
                now.words(),
                ours.words(),
                state.remedy
            )),
            (_, _) => Ok(()),
        }
    }

    /// Whether the controller may change something.
    ///
    /// Errors: `NOT_LEADER`, as for every change that this controller itself refuses.
    pub fn may_change(&self) -> Result<(), AdapterError> {
        let unread = match &*self.0.borrow() {
            State { known: Known::Unread, .. } => true,
            State { known: Known::Nothing, reported, .. } => reported.is_some(),
            State { known: Known::First | Known::This(_), .. } => false,
        };
        if unread {
            let text = "this controller has not yet checked whether the adapter's credentials are for the same \
            project as before";
            return Err(AdapterError::new(Reason::NotLeader, text));
        }
        self.readiness().map_err(|why| AdapterError::new(Reason::NotLeader, why))
    }

    /// Whether the content of a mirror with this scope may be used.
    pub(crate) fn may_show(&self, fingerprint: Option<&str>) -> Result<(), AdapterError> {
        self.may_change()?;
        match (&self.0.borrow().known, fingerprint) {
            (Known::This(ours), Some(shown)) if ours.fingerprint() != shown => {
                let text = "the objects in the adapter's new project have not been listed yet";
                Err(AdapterError::new(Reason::NotLeader, text))
            }
            (_, _) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_of_another_scope_is_not_read() {
        let guard = ScopeGuard::default();
        guard.report(Some(&scope("a")));
        for (shown, good) in [(None, true), (Some("#a"), true), (Some("#b"), false)] {
            assert_eq!(guard.may_show(shown).is_ok(), good, "{shown:?}");
        }
        guard.report(Some(&scope("b")));
        assert!(guard.may_show(Some("#a")).is_err(), "another scope is reported");
    }

    fn scope(project: &str) -> Scope {
        Scope { project: project.to_owned(), fingerprint: format!("#{project}"), ..Scope::default() }
    }

    #[test]
    fn without_a_store_the_first_scope_is_used() {
        let guard = ScopeGuard::default();
        assert_eq!(guard.may_change(), Ok(()), "an adapter that reports no scope");
        for (reported, good) in
            [(None, true), (Some(scope("a")), true), (None, true), (Some(scope("b")), false)]
        {
            guard.report(reported.as_ref());
            assert_eq!(guard.may_change().is_ok(), good, "{reported:?}");
        }
        guard.report(None);
        assert!(guard.may_change().is_err(), "an unknown scope changes nothing");
        guard.report(Some(&scope("a")));
        assert_eq!(guard.may_change(), Ok(()), "the first scope is back");
    }

    #[test]
    fn nothing_is_changed_before_the_stored_scope_is_compared() {
        let guard = ScopeGuard::default();
        guard.is_kept();
        assert!(guard.may_change().is_err(), "the stored scope was not read yet");
        assert_eq!(guard.read(None), None);
        assert_eq!(guard.may_change(), Ok(()), "neither the store nor the adapter has a scope");
        guard.report(Some(&scope("a")));
        assert!(guard.may_change().is_err(), "the scope must be stored first");
        let kept = guard.read(None).expect("the scope to store");
        assert_eq!(kept.0, "#a project a");
        assert_eq!((guard.read(Some(kept.0)), guard.may_change()), (None, Ok(())));
        guard.report(Some(&scope("b")));
        let refused = guard.may_change().expect_err("moved");
        assert!(
            refused.message.contains(
                "now uses project b, but this controller \
                 has worked in project a. The"
            ),
            "{refused}"
        );
        assert!(guard.readiness().is_err());
    }
}
