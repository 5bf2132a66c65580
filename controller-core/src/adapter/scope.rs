//! Whether the adapter works in the part of the cloud that this controller has worked in so far.
//!
//! An adapter that is started with another project's credentials finds nothing of ours there. What it then does not list is no proof of
//! anything, and whatever is made anew is made twice. So nothing is changed until a person says that the move is meant.

use std::sync::Arc;

use cloud_api_proto::{AdapterError, Reason, v1alpha1::Scope};
use tokio::sync::watch;

use crate::{mirror::Mirror, provider_id};

/// Compares the scopes that the adapter tells with the first one. Cloning gives another handle to the same.
#[derive(Clone, Debug, Default)]
pub struct ScopeGuard(Arc<watch::Sender<State>>);

#[derive(Clone, Debug, Default)]
struct State {
    known: Known,
    heard: Option<Mark>,
    /// The region that was heard of last. Empty: none.
    region: String,
    /// What a person may do about a move.
    remedy: String,
}

/// Which scope is ours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Known {
    /// The first one that is heard of.
    #[default]
    First,
    /// It is kept somewhere, and was not read yet.
    Unread,
    /// It is kept somewhere, and nothing is there: whatever is heard of is to be kept.
    Nothing,
    This(Mark),
}

/// A scope in one line: its fingerprint, and then words for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark(pub(crate) String);

impl Mark {
    /// `None`: it tells nothing.
    fn of(scope: &Scope) -> Option<Self> {
        let Scope { account, project, region, endpoint, fingerprint } = scope;
        let told = [("account", account), ("project", project), ("region", region), ("at", endpoint)];
        let words = told.iter().filter(|(_, value)| !value.is_empty());
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
    /// The adapter told where it works. One that does not know it (yet) changes nothing.
    pub(crate) fn heard(&self, scope: Option<&Scope>) {
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
            let changes = state.heard.as_ref() != Some(&mark);
            state.heard = Some(mark);
            changes
        });
    }

    /// The other provider ID of the same instance, as far as the adapter's region says.
    #[must_use]
    pub fn other_form(&self, provider_id: &str) -> Option<String> {
        provider_id::other_form(provider_id, &self.0.borrow().region)
    }

    /// Ours is kept somewhere: nothing is changed before it was read there.
    pub(crate) fn is_kept(&self) {
        self.0.send_modify(|state| state.known = Known::Unread);
    }

    /// What is kept. Returns what has to be kept instead of nothing.
    pub(crate) fn read(&self, kept: Option<String>) -> Option<Mark> {
        self.0.send_if_modified(|state| {
            state.known = kept.map_or(Known::Nothing, |text| Known::This(Mark(text)));
            false
        });
        let state = self.0.borrow();
        if state.known == Known::Nothing { state.heard.clone() } else { None }
    }

    /// What a person may do about a move.
    pub(crate) fn remedy(&self, text: String) {
        self.0.send_modify(|state| state.remedy = text);
    }

    /// Tells when another scope is heard of.
    pub(crate) fn changes(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut states = self.0.subscribe();
        // The sender lives as long as this future does.
        let this = self.clone();
        async move {
            let _lives = states.changed().await.is_ok();
            drop(this);
        }
    }

    /// Readiness: nothing is changed in a scope that is not ours.
    ///
    /// # Errors
    /// Both scopes, and what to do.
    pub fn readiness(&self) -> Result<(), String> {
        let state = self.0.borrow();
        match (&state.known, &state.heard) {
            (Known::This(ours), Some(now)) if ours.fingerprint() != now.fingerprint() => Err(format!(
                "the cloud adapter works in another part of the cloud now: {}; so far this controller worked in: {}. It changes \
                 nothing there. Give the adapter the credentials that it had, or, if the move is meant, {}",
                now.words(),
                ours.words(),
                state.remedy
            )),
            (_, _) => Ok(()),
        }
    }

    /// Whether something may be changed.
    ///
    /// # Errors
    /// `NOT_LEADER`, as for everything that this controller refuses itself.
    pub fn may_change(&self) -> Result<(), AdapterError> {
        let unread = match &*self.0.borrow() {
            State { known: Known::Unread, .. } => true,
            State { known: Known::Nothing, heard, .. } => heard.is_some(),
            State { known: Known::First | Known::This(_), .. } => false,
        };
        if unread {
            let text = "this controller has yet to see whether this is the part of the cloud that it worked in so far";
            return Err(AdapterError::new(Reason::NotLeader, text));
        }
        self.readiness().map_err(|why| AdapterError::new(Reason::NotLeader, why))
    }
}

impl ScopeGuard {
    /// Reads a mirror of the cloud for something that is written to Kubernetes: not while the adapter works in another part of the cloud,
    /// nor while the mirror still shows that part.
    ///
    /// # Errors
    /// As [`ScopeGuard::may_change`].
    pub fn read_mirror<T, R>(
        &self,
        mirror: &Mirror<String, T>,
        read: impl FnOnce() -> R,
    ) -> Result<R, AdapterError> {
        // The adapter's scope is known before a mirror shows anything of it, and that of the mirror afterwards.
        self.may_show(mirror.scope().as_deref())?;
        let content = read();
        self.may_change()?;
        Ok(content)
    }

    fn may_show(&self, fingerprint: Option<&str>) -> Result<(), AdapterError> {
        self.may_change()?;
        match (&self.0.borrow().known, fingerprint) {
            (Known::This(ours), Some(shown)) if ours.fingerprint() != shown => {
                let text = "what this part of the cloud has is not listed yet";
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
    fn what_a_mirror_shows_of_another_scope_is_not_read() {
        let guard = ScopeGuard::default();
        guard.heard(Some(&scope("a")));
        for (shown, good) in [(None, true), (Some("#a"), true), (Some("#b"), false)] {
            assert_eq!(guard.may_show(shown).is_ok(), good, "{shown:?}");
        }
        guard.heard(Some(&scope("b")));
        assert!(guard.may_show(Some("#a")).is_err(), "another scope comes");
    }

    fn scope(project: &str) -> Scope {
        Scope { project: project.to_owned(), fingerprint: format!("#{project}"), ..Scope::default() }
    }

    #[test]
    fn without_a_place_to_keep_it_the_first_scope_is_ours() {
        let guard = ScopeGuard::default();
        assert_eq!(guard.may_change(), Ok(()), "an adapter that tells nothing");
        for (told, good) in [(None, true), (Some(scope("a")), true), (None, true), (Some(scope("b")), false)]
        {
            guard.heard(told.as_ref());
            assert_eq!(guard.may_change().is_ok(), good, "{told:?}");
        }
        guard.heard(None);
        assert!(guard.may_change().is_err(), "not knowing changes nothing");
        guard.heard(Some(&scope("a")));
        assert_eq!(guard.may_change(), Ok(()), "it is back");
    }

    #[test]
    fn what_is_kept_is_compared_and_nothing_is_changed_before() {
        let guard = ScopeGuard::default();
        guard.is_kept();
        assert!(guard.may_change().is_err(), "not read yet");
        assert_eq!(guard.read(None), None);
        assert_eq!(guard.may_change(), Ok(()), "neither side says anything");
        guard.heard(Some(&scope("a")));
        assert!(guard.may_change().is_err(), "it is to be kept first");
        let kept = guard.read(None).expect("to be kept");
        assert_eq!(kept.0, "#a project a");
        assert_eq!((guard.read(Some(kept.0)), guard.may_change()), (None, Ok(())));
        guard.heard(Some(&scope("b")));
        let refused = guard.may_change().expect_err("moved");
        assert!(
            refused.message.contains("now: project b; so far this controller worked in: project a"),
            "{refused}"
        );
        assert!(guard.readiness().is_err());
    }
}
