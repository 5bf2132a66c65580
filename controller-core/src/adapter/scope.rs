//! Checks that the adapter works in the scope (the part of the cloud) in which this controller has worked so far.
//!
//! An adapter that is started with another project's credentials finds none of this cluster's objects there. So their absence from the
//! listings proves nothing, and the controller would create duplicates. Therefore the controller changes nothing until the operator
//! confirms the move, or until a search shows that nothing was made in the former scope. The same applies to another cluster ID, with which
//! the load balancers made so far are those of another cluster.

use std::sync::Arc;

use cloud_api_proto::{AdapterError, Reason, v1alpha1::Scope};
use tokio::sync::watch;

use crate::{
    provider_id,
    text::{NOTE_MAX, bounded, ended},
};

/// The name of each field in the description of a scope, and its name in an Event.
const FIELDS: [(&str, &str); 5] = [
    (CLUSTER, CLUSTER_FIELD),
    ("account", "account"),
    ("project", "project"),
    ("region", "region"),
    ("at", "endpoint"),
];
const CLUSTER: &str = "cluster";
const CLUSTER_FIELD: &str = "cluster ID";
/// The text before the command with which the operator accepts a move to another scope.
pub(crate) const RUN: &str = "run: ";
/// Minimum length of a value of a scope in an Event, in characters.
const VALUE_MIN: usize = 8;

/// Compares the scopes that the adapter reports with the first reported scope. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct ScopeGuard {
    state: Arc<watch::Sender<State>>,
    /// The scope in which the controller may make changes. `None`: it may make none.
    accepted: Arc<watch::Sender<Option<Mark>>>,
}

/// Resolves each time the controller may make changes in the adapter's scope again, or for the first time.
#[derive(Debug)]
pub struct ScopeAcceptances {
    accepted: watch::Receiver<Option<Mark>>,
    /// The sender must live as long as the receiver.
    _guard: ScopeGuard,
}

impl ScopeAcceptances {
    /// Waits until a scope is accepted. May be dropped at any point.
    pub async fn next(&mut self) {
        while self.accepted.changed().await.is_ok() {
            if self.accepted.borrow_and_update().is_some() {
                return;
            }
        }
        std::future::pending::<()>().await;
    }
}

#[derive(Clone, Debug, Default)]
struct State {
    /// The cluster ID of this controller. Empty: no cluster ID is compared.
    cluster_id: String,
    known: Known,
    reported: Option<Mark>,
    /// The region that the adapter reported last. Empty: no region.
    region: String,
    /// What the operator can do to accept a move.
    remedy: String,
    moves: Moves,
}

/// When another scope than the stored one counts as a move.
#[derive(Clone, Debug, Default)]
enum Moves {
    /// At once.
    #[default]
    AtOnce,
    /// After the search whether the controller made anything in the stored scope. This value contains the scope for which the last search
    /// has ended and found something.
    AfterSearch(Option<Mark>),
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
    fn of(scope: &Scope, cluster_id: &str) -> Option<Self> {
        let Scope { account, project, region, endpoint, fingerprint } = scope;
        let fields = FIELDS.iter().zip([cluster_id, account, project, region, endpoint]);
        let words = fields.filter(|(_, value)| !value.is_empty());
        let words = words.fold(String::new(), |text, ((name, _), value)| format!("{text} {name} {value}"));
        (!fingerprint.is_empty()).then(|| Self(format!("{fingerprint}{words}")))
    }

    fn fingerprint(&self) -> &str {
        self.0.split(' ').next().unwrap_or_default()
    }

    /// Returns the description of the scope, without the cluster.
    fn words(&self) -> &str {
        let all = self.0.split_once(' ').map_or(self.0.as_str(), |(_, words)| words);
        let value = all.strip_prefix(CLUSTER).and_then(|rest| rest.strip_prefix(' '));
        value.and_then(|rest| rest.split_once(' ')).map_or(all, |(_, words)| words)
    }

    /// Whether this scope may be another one. A scope that was stored without a cluster ID is the same for each cluster ID.
    fn differs(&self, other: &Self) -> bool {
        self.is_of_other_cluster(other) || self.fingerprint() != other.fingerprint()
    }

    fn is_of_other_cluster(&self, other: &Self) -> bool {
        let (here, there) = (self.value(0), other.value(0));
        !here.is_empty() && !there.is_empty() && here != there
    }

    /// Returns the value of the n-th field in the description, or an empty text if the description does not contain the field.
    fn value(&self, n: usize) -> &str {
        let mut names = FIELDS.iter().skip(n).map(|(name, _)| format!(" {name} "));
        let rest = names.next().and_then(|name| self.0.split_once(&name)).map_or("", |(_, rest)| rest);
        names.fold(rest, |value, next| value.split_once(&next).map_or(value, |(value, _)| value))
    }
}

/// The first difference between two scopes, for an Event.
#[derive(Debug)]
struct Move<'a> {
    field: &'static str,
    from: &'a str,
    to: &'a str,
}

impl<'a> Move<'a> {
    fn between(from: &'a Mark, to: &'a Mark) -> Self {
        let named = |value: &'a str| if value.is_empty() { "none" } else { value };
        let cluster = usize::from(!from.is_of_other_cluster(to));
        let fields = FIELDS.iter().enumerate().skip(cluster).map(|(n, (_, field))| Self {
            field,
            from: named(from.value(n)),
            to: named(to.value(n)),
        });
        let fingerprints = Self { field: "scope", from: from.fingerprint(), to: to.fingerprint() };
        fields.into_iter().find(|it| it.from != it.to).unwrap_or(fingerprints)
    }

    /// Returns the settings of the adapter that decide the scope and that may have changed.
    fn settings(&self) -> &'static str {
        match self.field {
            // All other fields are the same.
            "endpoint" => "endpoint",
            "region" => "region or endpoint",
            CLUSTER_FIELD => "clusterId (--cluster-id)",
            _ => "endpoint or credentials",
        }
    }

    /// Returns who moved, and where this is set.
    fn who(&self) -> &'static str {
        if self.field == CLUSTER_FIELD { "controller" } else { "adapter" }
    }

    /// Describes the move in a clause. The clause has at most `most` characters, unless this leaves too few characters for the values.
    fn clause(&self, most: usize) -> String {
        let (Self { field, from, to }, who) = (self, self.who());
        let text = |from: &str, to: &str| format!("{who} now uses {field} {to}, not {from}");
        let values = most.saturating_sub(text("", "").chars().count());
        let (from_length, to_length) = (from.chars().count(), to.chars().count());
        // If one value is short, the other value may be longer.
        let room = |other: usize| values.saturating_sub(other.min(values / 2)).max(VALUE_MIN);
        text(&bounded(from, room(to_length)), &bounded(to, room(from_length)))
    }
}

impl State {
    /// Returns the scope in which this controller has worked, and the other scope that the adapter uses now.
    fn differs(&self) -> Option<(&Mark, &Mark)> {
        match (&self.known, &self.reported) {
            (Known::This(ours), Some(now)) if ours.differs(now) => Some((ours, now)),
            (_, _) => None,
        }
    }

    /// Like [`Self::differs`], but only if the other scope counts as a move.
    fn moved(&self) -> Option<(&Mark, &Mark)> {
        self.differs().filter(|(_, now)| match &self.moves {
            Moves::AtOnce => true,
            Moves::AfterSearch(searched) => searched.as_ref() == Some(now),
        })
    }

    /// Returns the scope in which the controller may make changes.
    fn accepted(&self) -> Option<&Mark> {
        match (&self.known, &self.reported) {
            (Known::This(_), Some(now)) if self.differs().is_none() => Some(now),
            (_, _) => None,
        }
    }
}

impl ScopeGuard {
    /// Returns a guard that also checks that this controller uses the cluster ID with which it has worked so far.
    #[must_use]
    pub(crate) fn of_cluster(cluster_id: &str) -> Self {
        let guard = Self::default();
        guard.state.send_modify(|state| state.cluster_id = cluster_id.to_owned());
        guard
    }

    /// Records the scope that the adapter reported. A report without a scope has no effect.
    pub(crate) fn report(&self, scope: Option<&Scope>) {
        let Some(scope) = scope else { return };
        self.state.send_if_modified(|state| {
            state.region.clone_from(&scope.region);
            false
        });
        let mark = Mark::of(scope, &self.state.borrow().cluster_id);
        let Some(mark) = mark else { return };
        self.state.send_if_modified(|state| {
            if state.known == Known::First {
                state.known = Known::This(mark.clone());
            }
            let changes = state.reported.as_ref() != Some(&mark);
            state.reported = Some(mark);
            changes
        });
        self.announce();
    }

    /// Notifies [`ScopeAcceptances`] of the accepted scope if it has changed.
    fn announce(&self) {
        let accepted = self.state.borrow().accepted().cloned();
        self.accepted.send_if_modified(|last| {
            let changes = *last != accepted;
            *last = accepted;
            changes
        });
    }

    /// Returns a value that reports when work that waits for the adapter's scope can continue.
    #[must_use]
    pub fn acceptances(&self) -> ScopeAcceptances {
        ScopeAcceptances { accepted: self.accepted.subscribe(), _guard: self.clone() }
    }

    /// Returns the other form of the provider ID: with the adapter's region, or without a region. `None`: there is only one form, or the
    /// region is not known.
    #[must_use]
    pub fn other_form(&self, provider_id: &str) -> Option<String> {
        provider_id::other_form(provider_id, &self.state.borrow().region)
    }

    /// Returns the part of the cloud that the adapter uses, for an Event: `project a, region r, endpoint u`. Empty: not known.
    #[must_use]
    pub fn place(&self) -> String {
        let state = self.state.borrow();
        let Some(mark) = &state.reported else { return String::new() };
        // The cluster is no place, and the account is left out, because the project identifies the place, and an Event is short.
        let fields = FIELDS.iter().enumerate().skip(2).map(|(n, (_, field))| (field, mark.value(n)));
        let words =
            fields.filter(|(_, value)| !value.is_empty()).map(|(field, value)| format!("{field} {value}"));
        words.collect::<Vec<_>>().join(", ")
    }

    /// Declares that the scope is stored on a Lease. The controller changes nothing until the stored scope has been read. Another scope
    /// counts as a move only after [`Self::is_move`].
    pub(crate) fn is_kept(&self) {
        self.state.send_modify(|state| {
            state.known = Known::Unread;
            state.moves = Moves::AfterSearch(None);
        });
    }

    /// Returns the scope that the adapter reports if it differs from the stored scope.
    pub(crate) fn other(&self) -> Option<Mark> {
        self.state.borrow().differs().map(|(_, now)| now.clone())
    }

    /// Declares that this other scope is a move, which the operator must confirm.
    pub(crate) fn is_move(&self, to: Mark) {
        self.state.send_if_modified(|state| {
            if let Moves::AfterSearch(searched) = &mut state.moves {
                *searched = Some(to);
            }
            false
        });
    }

    /// Sets the stored scope. Returns the scope to store if none was stored.
    pub(crate) fn read(&self, kept: Option<String>) -> Option<Mark> {
        self.state.send_if_modified(|state| {
            state.known = kept.map_or(Known::Nothing, |text| Known::This(Mark(text)));
            false
        });
        self.announce();
        let state = self.state.borrow();
        if state.known == Known::Nothing { state.reported.clone() } else { None }
    }

    pub(crate) fn remedy(&self, text: String) {
        self.state.send_modify(|state| state.remedy = text);
    }

    /// Resolves when the adapter reports another scope.
    pub(crate) fn changes(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut states = self.state.subscribe();
        // The sender must live as long as this future.
        let this = self.clone();
        async move {
            let _lives = states.changed().await.is_ok();
            drop(this);
        }
    }

    /// Checks readiness: the adapter must not work in another scope.
    pub fn readiness(&self) -> Result<(), String> {
        let state = self.state.borrow();
        let Some((ours, now)) = state.moved() else { return Ok(()) };
        let change = Move::between(ours, now);
        if change.field == CLUSTER_FIELD {
            return Err(format!(
                "This controller now uses cluster ID {}, but has worked with {}. Load balancers that it made are those of \
                another cluster now, so the controller changes nothing in the cloud. Restore {} or, if the change is \
                intended, {}",
                change.to,
                change.from,
                change.settings(),
                state.remedy
            ));
        }
        Err(format!(
            "The cloud adapter now uses {0}, but this controller has worked in {1}. The controller \
            changes nothing in {0}. Restore the adapter's previous {2} or, if the move is \
            intended, {3}",
            now.words(),
            ours.words(),
            change.settings(),
            state.remedy
        ))
    }

    /// Returns what moved, in a clause of at most `most` characters without the first article: `adapter now uses project b, not a`.
    /// [`Self::readiness`] has the whole text. `None`: the adapter works in the controller's scope.
    #[must_use]
    pub fn moved(&self, most: usize) -> Option<String> {
        self.state.borrow().moved().map(|(from, to)| Move::between(from, to).clause(most))
    }

    /// Returns the text of the Event about a move: how the scope has changed, and how the operator accepts the move.
    pub(crate) fn event(&self) -> Option<String> {
        let remedy = self.state.borrow().remedy.clone();
        let text = |clause: &str| format!("The {clause}");
        let end = format!(". If intended: {}", remedy.strip_prefix(RUN).unwrap_or(&remedy));
        let others = text("").chars().count() + end.chars().count();
        let clause = self.moved(NOTE_MAX.saturating_sub(others))?;
        Some(ended(&text(&clause), &end))
    }

    /// Whether the controller may change something.
    ///
    /// Errors: `NOT_LEADER`, as for every change that this controller itself refuses.
    pub fn may_change(&self) -> Result<(), AdapterError> {
        let unread = match &*self.state.borrow() {
            State { known: Known::Unread, .. } => true,
            State { known: Known::Nothing, reported, .. } => reported.is_some(),
            state @ State { known: Known::First | Known::This(_), .. } => {
                state.differs().is_some() && state.moved().is_none()
            }
        };
        if unread {
            let text = "this controller has not yet checked whether the adapter works in the same part of the \
            cloud as before";
            return Err(AdapterError::new(Reason::NotLeader, text));
        }
        self.readiness().map_err(|why| AdapterError::new(Reason::NotLeader, why))
    }

    /// Whether the content of a mirror with this scope may be used.
    pub(crate) fn may_show(&self, fingerprint: Option<&str>) -> Result<(), AdapterError> {
        self.may_change()?;
        match (&self.state.borrow().known, fingerprint) {
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

    #[test]
    fn another_cluster_id_is_a_move() {
        for (kept, moved) in [
            ("#a cluster c project a", None),
            ("#a project a", None),
            ("#a cluster d project a", Some("controller now uses cluster ID c, not d")),
        ] {
            let guard = ScopeGuard::of_cluster("c");
            guard.read(Some(kept.to_owned()));
            guard.report(Some(&scope("a")));
            assert_eq!(guard.moved(100).as_deref(), moved, "{kept}");
            assert_eq!(guard.may_change().is_ok(), moved.is_none(), "{kept}");
            let text = guard.readiness().err().unwrap_or_default();
            assert_eq!(text.contains("Restore clusterId (--cluster-id) or, if"), moved.is_some(), "{text}");
        }
        let guard = ScopeGuard::of_cluster("c");
        guard.report(Some(&scope("a")));
        assert_eq!(guard.read(None), Some(Mark("#a cluster c project a".to_owned())));
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
        assert!(guard.may_change().is_err(), "the search has not ended");
        assert_eq!((guard.readiness(), guard.event()), (Ok(()), None), "this is not a move yet");
        guard.is_move(guard.other().expect("b"));
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

    #[test]
    fn the_text_names_the_settings_that_may_have_moved() {
        for (kept, settings) in [
            ("#x project b at u", "Restore the adapter's previous endpoint or, if"),
            ("#x project b region q at u", "Restore the adapter's previous region or endpoint or, if"),
            ("#x project a at v", "Restore the adapter's previous endpoint or credentials or, if"),
        ] {
            let guard = ScopeGuard::default();
            guard.read(Some(kept.to_owned()));
            guard.report(Some(&Scope { endpoint: "v".to_owned(), ..scope("b") }));
            let text = guard.readiness().expect_err("moved");
            assert!(text.contains(settings), "{text}");
        }
    }

    const COMMAND: &str =
        "kubectl -n kube-system annotate lease cloud-service-controller cloudadapter.dev/scope-";

    fn event(kept: &str, now: &Scope, remedy: &str) -> String {
        let guard = ScopeGuard::default();
        guard.read(Some(kept.to_owned()));
        guard.remedy(remedy.to_owned());
        guard.report(Some(now));
        guard.event().expect("moved")
    }

    #[test]
    fn event_names_the_first_difference() {
        let now = |region: &str, endpoint: &str| Scope {
            region: region.to_owned(),
            endpoint: endpoint.to_owned(),
            ..scope("b")
        };
        for (kept, now, moved) in [
            ("#a project a region r at u", now("r", "u"), "project b, not a."),
            ("#a project b region q r at u", now("r", "u"), "region r, not q r."),
            ("#a project b", now("r", ""), "region r, not none."),
            ("#a project b region r at u", now("r", "v"), "endpoint v, not u."),
            ("#a project b", now("", ""), "scope #b, not #a."),
            ("#a", now("", ""), "project b, not none."),
        ] {
            let text = event(kept, &now, "restart this controller");
            assert_eq!(text, format!("The adapter now uses {moved} If intended: restart this controller"));
        }
    }

    #[test]
    fn event_is_short_and_its_command_is_whole() {
        for n in [1, 32, 64, 300] {
            let (from, to) = ("a".repeat(n), "b".repeat(n));
            let namespace = "n".repeat(n.min(63));
            let long = COMMAND.replace("kube-system", &namespace);
            for command in [COMMAND, &long] {
                let text = event(&format!("#a project {from}"), &scope(&to), &format!("{RUN}{command}"));
                assert!(text.chars().count() <= NOTE_MAX, "{text}");
                assert!(text.ends_with(&format!(" If intended: {command}")), "{text}");
            }
            let text = event(&format!("#a project {from}"), &scope(&to), COMMAND);
            let is_whole = text.contains(&format!("The adapter now uses project {to}, not {from}."));
            assert_eq!(is_whole, n <= 32, "{text}");
        }
        let text = event(&format!("#a project {}", "a".repeat(50)), &scope("b"), COMMAND);
        assert!(text.contains(&"a".repeat(50)), "the other value is short: {text}");
    }
}
