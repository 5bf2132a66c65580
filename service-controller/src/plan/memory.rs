//! What the controller remembers about a Service between two rounds. This memory may be lost at any time: after a restart the controller
//! calls the adapter once per Service, and the adapter answers without vendor calls.

mod budget;
mod guess;
mod narrowed;
mod pace;
mod remark;
mod reported;
mod settled;
mod topic;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use self::{
    budget::BudgetWaits, guess::Guess, narrowed::Narrowed, pace::Pace, remark::Remark, reported::Reported,
};
pub(crate) use self::{settled::Settled, topic::Topic};
use super::{
    Ask, Fact, Operation, Why,
    cloud::{Balancer, EnsureResult, Removal, State},
    compat::Foreign,
    features::Features,
    service::{Class, FINALIZER, Family, Ingress, Service},
    spec::Shape,
    wanted::{Judged, Wanted},
};

/// How long a difference between the cache and the adapter's answer counts as a lag of the cache.
pub(crate) const LAG: Duration = Duration::from_mins(5);

/// How long the cache may still show a load balancer that was just deleted, especially after a restart of the adapter.
const ORPHAN_AFTER: Duration = Duration::from_mins(1);

/// The same delay for a load balancer that this process created. Here the lag does not matter: the delay only lets the deletion brake count
/// many Services that disappear together.
const CROWD: Duration = Duration::from_secs(5);

/// Number of consecutive rounds in which a call to the API server must fail before the failure is reported.
const LASTS: u32 = 3;

/// Delay before the next round if the adapter does not name one.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// The memory of one Service.
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact")]
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Memory {
    /// The last settings that the adapter accepted. They stay in force while it cannot apply the current ones.
    pub(crate) good: Option<Arc<Wanted>>,
    /// Digest of the settings that the adapter refused last, and the time of the refusal.
    refused: Option<(String, Duration)>,
    /// [`Self::good`] was derived from the existing load balancer; the Service did not request those settings.
    guess: Option<Guess>,
    /// This process requested a load balancer, and the adapter has not confirmed a deletion since.
    pub(crate) made: bool,
    /// The Service has a class of another controller, but its status shows a load balancer that this controller owns.
    pub(crate) claimed: bool,
    /// The Service had a class of another controller while a load balancer of this controller was left that no longer served it. This
    /// controller then owns the load balancer, but perhaps not the finalizer.
    pub(crate) of_another: bool,
    /// The adapter's last confirmation that the requested load balancer exists.
    pub(crate) settled: Option<Settled>,
    /// The adapter confirmed that no part of the load balancer is left.
    pub(crate) removed: bool,
    /// The work in progress, and its start.
    work: Option<(Work, Duration)>,
    /// The last Event of each topic.
    told: Reported,
    /// The adapter asked not to be called before this time, since the start of the process.
    held_until: Option<Duration>,
    /// How long the load balancer has waited for the call budget.
    budget_waits: BudgetWaits,
    /// Set while the cache shows a load balancer that no Service uses.
    orphan: Option<Orphan>,
    /// What the cache still showed when the adapter confirmed the deletion.
    gone: Option<Gone>,
    /// Events about annotations of another controller.
    foreign: Remark<Foreign>,
    /// Whether the adapter chose the load balancer's name because it does not support the template.
    unnamed: Remark<bool>,
    /// The only address family of the existing load balancer, if the adapter cannot add the preferred second one.
    narrowed: Option<Narrowed>,
    /// The load balancer ID recorded by another controller, if the adapter refused that ID for this Service.
    pub(crate) gone_id: Option<String>,
    /// This controller's last write to the Service, until the cache shows it.
    written: Option<Written>,
    status_pace: Pace,
    finalizer_pace: Pace,
    release_pace: Pace,
    /// The call to the API server that failed in the last round, and the number of consecutive rounds in which it failed.
    not_done: Option<(&'static str, u32)>,
    /// The Service had another controller's class in some round since the finalizer was set.
    pub(super) classed: bool,
    /// Time since which another controller's finalizer blocks the deletion.
    held_since: Option<Duration>,
}

/// A load balancer that no Service uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Orphan {
    /// Time at which the orphan was found, since the start of the process.
    since: Duration,
    /// The orphan was reported.
    told: bool,
    /// The cache has shown the load balancer since it was found.
    shown: bool,
}

/// Deleted load balancers that the cache may still show.
#[derive(Clone, Debug, PartialEq)]
struct Gone {
    vendor_ids: BTreeSet<String>,
    /// Time since the start of the process.
    at: Duration,
}

/// What the next round must do, in ascending order of the amount of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    Hosts,
    Build,
    Remove,
}

#[derive(Clone, Debug, PartialEq)]
struct Written {
    /// The version of the Service in the cache at the time of the write.
    over: String,
    finalizer: bool,
    ingress: Vec<Ingress>,
}

/// What follows from an answer of the adapter.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// Events to emit, in order.
    pub(crate) news: Vec<Fact>,
    pub(crate) next: NextPass,
    /// The nodes were updated; the duration since the first request of this update.
    pub(crate) hosts_updated: Option<Duration>,
    /// The update of the nodes failed, and no load balancer serves traffic.
    pub(crate) hosts_failed: bool,
    /// The current problem, even if it was reported before.
    pub(crate) trouble: Option<Fact>,
    /// What the adapter waits for, in the adapter's words. Usually empty.
    pub(crate) waits: String,
}

/// When the next round runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum NextPass {
    /// At once, because more may have to be done.
    #[default]
    Now,
    /// After a delay, because the adapter is working.
    After(Duration),
    /// With backoff, because a call failed.
    Backoff,
}

impl Outcome {
    fn later(waits: String, next: NextPass) -> Self {
        Self { waits, next, ..Self::default() }
    }
}

impl Memory {
    /// Returns the Service with the writes that the cache does not show yet, so that none is repeated.
    pub(crate) fn overlay(&mut self, mut service: Service) -> Service {
        self.written = self.written.take().filter(|written| written.over == service.version);
        if let Some(written) = &self.written {
            service.finalizer = written.finalizer;
            service.ingress.clone_from(&written.ingress);
        }
        service
    }

    /// Records that `service` was written, and which version of it the cache had.
    pub(crate) fn wrote(&mut self, service: &Service) {
        self.written = Some(Written {
            over: service.version.clone(),
            finalizer: service.finalizer,
            ingress: service.ingress.clone(),
        });
    }

    /// Updates the memory with the state in the cache.
    pub(crate) fn observe(&mut self, service: &Service, cloud: Option<&[Balancer]>, now: Duration) {
        self.classed = service.finalizer && (self.classed || service.class == Class::Others);
        let Some(cloud) = cloud else { return };
        if let Some(settled) = &mut self.settled {
            settled.observe(cloud, now);
        }
        if self.narrowed.as_mut().is_some_and(|narrowed| narrowed.went(cloud)) {
            self.narrowed = None;
        }
        let shown = |gone: &Gone| cloud.iter().any(|it| gone.vendor_ids.contains(&it.vendor_id));
        self.gone = self.gone.take().filter(|gone| shown(gone) && now.saturating_sub(gone.at) < LAG);
        // A removal in progress would change the result.
        if !self.removes() && !self.removed {
            let of_another = service.class == Class::Others;
            self.claimed = of_another && cloud.iter().any(|it| service.shows(&it.ingress));
            // The load balancer is gone, so the fact that this process created it no longer decides about the finalizer.
            self.made &= !(of_another && cloud.is_empty());
        }
        let left = self.made || self.removes() || self.removed || cloud.iter().any(|it| !self.is_gone(it));
        self.of_another |= service.class == Class::Others && !self.claimed && left;
    }

    /// How the cache differs from what the adapter confirmed. `None`: no difference, or the adapter was called about exactly this one.
    pub(crate) fn drift(&self, cloud: &[Balancer], now: Duration) -> Option<String> {
        self.settled.as_ref()?.drift(cloud, now)
    }

    /// Records that the adapter refused these settings. They are retried when they change, or after a delay.
    pub(crate) fn refuse(&mut self, ask: &Ask) {
        let digest = &ask.wanted.shape.digest;
        if self.good.as_ref().is_some_and(|good| good.shape.digest == *digest) {
            // The adapter now refuses settings that it accepted before, so there are none to fall back to.
            self.good = None;
        }
        if self.good.is_some() {
            self.work = None;
        }
        self.refused = Some((digest.clone(), ask.at));
    }

    /// Clears the last refusal, so that the settings are retried at once.
    pub(crate) fn may_be_granted(&mut self) {
        self.refused = None;
    }

    /// From now on requests only the family of the existing load balancer, because the adapter cannot add the preferred second one. Returns
    /// whether that restriction is possible.
    pub(crate) fn narrow(&mut self, ask: &Ask, family: Option<Family>, of: (&Service, &Features)) -> bool {
        let Some(family) = family.filter(|_| ask.wanted.may_narrow) else { return false };
        self.narrowed = Some(Narrowed::new(family, of));
        if self.good.is_some() {
            self.work = None;
        }
        true
    }

    /// Requests two families again if the Service's preference or the adapter's capabilities have changed. `features`: `None` if the
    /// adapter was never reached.
    pub(crate) fn widen(&mut self, service: &Service, features: Option<&Features>) {
        let holds = |it: &Narrowed| features.is_none_or(|features| it.holds((service, features)));
        self.narrowed = self.narrowed.take().filter(holds);
    }

    /// The only family to request, if the request is restricted to one.
    pub(crate) fn family(&self) -> Option<Family> {
        self.narrowed.as_ref().map(|it| it.to)
    }

    /// Whether the adapter refused these settings so recently that they are not retried yet.
    pub(crate) fn is_refused(&self, shape: &Shape, now: Duration) -> bool {
        let lately = |at: Duration| now.saturating_sub(at) < LAG;
        self.refused.as_ref().is_some_and(|(digest, at)| *digest == shape.digest && lately(*at))
    }

    /// The memory as of a call to the adapter, published to other workers that count load balancers.
    pub(crate) fn begun(&self) -> Self {
        Self { made: true, ..self.clone() }
    }

    /// Returns the Events to emit before an ensure. From now on the load balancer may exist.
    pub(crate) fn asking(&mut self, ask: &Ask) -> Vec<Fact> {
        self.removed = false;
        self.made = true;
        self.of_another = false;
        match ask.why {
            // The Event was emitted when the settings were refused.
            Why::Changed if self.refused.as_ref().is_some_and(|(it, _)| *it == ask.wanted.shape.digest) => {
                self.work = Some((Work::Build, ask.at));
                Vec::new()
            }
            Why::Changed | Why::Missing => self.start(Work::Build, ask),
            Why::Hosts => self.start(Work::Hosts, ask),
            Why::FirstLook | Why::Drift(_) => Vec::new(),
        }
    }

    /// Processes the answer to an ensure.
    pub(crate) fn answered(&mut self, ask: &Ask, answer: EnsureResult, seen: Option<&[Balancer]>) -> Outcome {
        let work = if ask.why == Why::Hosts { Work::Hosts } else { Work::Build };
        let mut news = Vec::new();
        if answer.worked(seen) {
            news = self.start(work, ask);
        }
        let hosts_updated = self.hosts_since().map(|since| ask.at.saturating_sub(since));
        if matches!(answer.state, State::Active | State::Degraded | State::Pending) {
            if ask.stands_in {
                self.guess.iter_mut().for_each(|guess| guess.taken = true);
            } else {
                self.good = Some(Arc::clone(&ask.wanted));
                (self.refused, self.guess) = (None, None);
            }
        }
        match answer.state {
            State::Active | State::Degraded => {
                self.budget_waits = BudgetWaits::default();
                // With replacement settings in force, the refused settings are still invalid.
                if !ask.stands_in {
                    self.agree();
                }
                news.extend(self.finish(ask));
                let (doubts, trouble) = self.doubts(&answer, ask.at);
                news.extend(doubts);
                self.settled = Some(Settled::new(ask, answer, seen));
                Outcome { news, hosts_updated, trouble, ..Outcome::default() }
            }
            State::Pending => {
                news.extend(self.told.again(Topic::Progress, ask.at));
                news.extend(self.budget_waits.answered(answer.budget, ask.at).map(Fact::WaitsForBudget));
                let next = NextPass::After(answer.retry_after.unwrap_or(ASK_AGAIN));
                Outcome { news, ..Outcome::later(answer.why, next) }
            }
            State::Error | State::Deleting | State::Absent | State::Unknown => {
                self.settled = None;
                let text = format!("the load balancer is {}{}", answer.state, tail(&answer.why));
                news.extend(self.trouble(&ask.step(), &text, ask.at));
                let (hosts_failed, trouble) = (ask.why == Why::Hosts, Some(Fact::Failed(ask.step(), text)));
                let next = answer.retry_after.map_or(NextPass::Backoff, NextPass::After);
                Outcome { news, next, hosts_failed, trouble, ..Outcome::default() }
            }
        }
    }

    /// Returns the Events to emit before a deletion, and discards the adapter's earlier confirmations.
    pub(crate) fn removing(&mut self, now: Duration) -> Vec<Fact> {
        self.settled = None;
        self.good = None;
        (self.refused, self.guess) = (None, None);
        self.narrowed = None;
        match self.work.replace((Work::Remove, Duration::ZERO)) {
            Some((Work::Remove, _)) => Vec::new(),
            Some((Work::Hosts | Work::Build, _)) | None => {
                self.budget_waits = BudgetWaits::default();
                self.begins(Fact::Deleting, now)
            }
        }
    }

    /// Whether a removal has begun and not ended.
    pub(crate) fn removes(&self) -> bool {
        self.work.is_some_and(|(work, _)| work == Work::Remove) && !self.removed
    }

    /// Remaining grace period for another controller whose finalizer blocks the deletion. `None`: the period is over, so report it.
    pub(crate) fn patience(&mut self, now: Duration) -> Option<Duration> {
        let since = *self.held_since.get_or_insert(now);
        (since + LAG).checked_sub(now).filter(|rest| !rest.is_zero())
    }

    /// Processes the answer to a deletion; `at`: when the deletion was called, since the start of the process.
    pub(crate) fn removal(&mut self, step: &Operation, answer: &Removal, at: Duration) -> Outcome {
        match answer.state {
            State::Absent => {
                self.removed = true;
                self.made = false;
                Outcome::default()
            }
            State::Deleting | State::Pending => {
                let words = self.budget_waits.answered(answer.budget.clone(), at);
                let again = self.told.again(Topic::Progress, at);
                let news = again.into_iter().chain(words.map(Fact::WaitsForBudget)).collect();
                let next = NextPass::After(answer.retry_after.unwrap_or(ASK_AGAIN));
                Outcome { news, ..Outcome::later(answer.why.clone(), next) }
            }
            State::Error | State::Active | State::Degraded | State::Unknown => {
                let text =
                    format!("the load balancer is {} and was not deleted{}", answer.state, tail(&answer.why));
                let (news, trouble) = (self.trouble(step, &text, at), Fact::Failed(step.clone(), text));
                Outcome { news, trouble: Some(trouble), next: NextPass::Backoff, ..Outcome::default() }
            }
        }
    }

    /// The load balancer is gone and this controller is finished with the Service. Only its last write and the pace of its writes are kept.
    pub(crate) fn released(&mut self) -> Vec<Fact> {
        let (written, release_pace) = (self.written.take(), std::mem::take(&mut self.release_pace));
        *self = Self { written, release_pace, ..Self::default() };
        vec![Fact::Deleted]
    }

    /// Like [`Self::released`], for a Service that does not change. A load balancer that the cache still shows is a lag of the cache.
    pub(crate) fn forgotten(&mut self, seen: Option<&[Balancer]>, now: Duration) -> Vec<Fact> {
        let vendor_ids = seen.into_iter().flatten().map(|it| it.vendor_id.clone()).collect();
        let news = self.released();
        self.gone = Some(Gone { vendor_ids, at: now });
        news
    }

    /// Whether the adapter has already confirmed the deletion of this load balancer.
    pub(crate) fn is_gone(&self, balancer: &Balancer) -> bool {
        self.gone.as_ref().is_some_and(|gone| gone.vendor_ids.contains(&balancer.vendor_id))
    }

    /// Returns the informational Events: annotations of another controller, and a name that differs from the template. `builds`: whether
    /// other Events of the Service are emitted, too.
    pub(crate) fn remarks(&mut self, foreign: &Foreign, judged: &Judged, builds: bool) -> Vec<Fact> {
        let mut news = Vec::new();
        let foreign = Foreign { refusals: Vec::new(), ..foreign.clone() };
        if self.foreign.is_news(&foreign, builds) {
            let Foreign { understood, ignored, .. } = foreign;
            let rows = [(understood, Fact::Compatible as fn(_) -> _), (ignored, Fact::Ignored)];
            let said = rows.into_iter().filter(|(words, _)| !words.is_empty());
            news.extend(said.map(|(words, news)| news(words)));
        }
        if let Some(wanted) = &judged.wanted
            && self.unnamed.is_news(&wanted.unnamed, builds)
            && wanted.unnamed
        {
            news.push(Fact::Unnamed);
        }
        news
    }

    /// Blocks calls to the adapter for the delay that it asked for, even if the Service changes.
    pub(crate) fn hold(&mut self, now: Duration, delay: Duration) {
        self.held_until = Some(now + delay);
    }

    /// Remaining delay before the adapter may be called.
    pub(crate) fn held(&self, now: Duration) -> Option<Duration> {
        self.held_until.and_then(|until| until.checked_sub(now)).filter(|rest| !rest.is_zero())
    }

    /// Records that everything is in sync, so that the next failure is reported at once.
    pub(crate) fn calm(&mut self) {
        if !self.is_degraded() {
            self.told.over(Topic::Work);
        }
        self.told.over(Topic::Hosts);
        self.held_until = None;
        self.orphan = None;
        self.not_done = None;
    }

    /// Records a failed call to the API server. Returns whether it failed in several consecutive rounds; single failures are not reported.
    pub(crate) fn lasts(&mut self, call: &'static str) -> bool {
        let times = self.not_done.filter(|(before, _)| *before == call).map_or(1, |(_, times)| times + 1);
        self.not_done = Some((call, times.min(LASTS)));
        times >= LASTS
    }

    /// Records that the requested settings are in force, so that the next refusal is reported at once.
    pub(crate) fn agree(&mut self) {
        self.told.over(Topic::Wish);
        self.told.over(Topic::Refused);
        (self.refused, self.guess) = (None, None);
    }

    /// Remaining delay before the same status may be written again.
    pub(crate) fn status_paced(&self, ingress: &[Ingress], now: Duration) -> Option<Duration> {
        self.status_pace.rest(&format!("{ingress:?}"), now)
    }

    /// Records that the status was written.
    pub(crate) fn wrote_status(&mut self, service: &Service, now: Duration) {
        self.status_pace.wrote(&format!("{:?}", service.ingress), now);
        self.wrote(service);
    }

    /// Remaining delay before the finalizer may be written again.
    pub(crate) fn finalizer_paced(&self, now: Duration) -> Option<Duration> {
        self.finalizer_pace.rest(FINALIZER, now)
    }

    /// Records that the finalizer was written.
    pub(crate) fn wrote_finalizer(&mut self, service: &Service, now: Duration) {
        self.finalizer_pace.wrote(FINALIZER, now);
        self.wrote(service);
    }

    /// Remaining time in which an unused load balancer may be a lag of the cache, or the first of many. `None`: it is an orphan.
    pub(crate) fn orphan_doubt(&mut self, now: Duration) -> Option<Duration> {
        let doubt = if self.made { CROWD } else { ORPHAN_AFTER };
        let orphan = self.orphan.get_or_insert(Orphan { since: now, told: false, shown: false });
        (orphan.since + doubt).checked_sub(now).filter(|rest| !rest.is_zero())
    }

    /// How long the load balancer has had no Service.
    pub(crate) fn orphan_for(&self, now: Duration) -> Duration {
        self.orphan.map_or(Duration::ZERO, |orphan| now.saturating_sub(orphan.since))
    }

    /// Records whether the cache shows the load balancer. Returns whether another client deleted it, because it disappeared.
    pub(crate) fn orphan_went(&mut self, shown: bool) -> bool {
        let Some(orphan) = &mut self.orphan else { return false };
        orphan.shown |= shown;
        orphan.shown && !shown
    }

    /// Whether the orphan was reported.
    pub(crate) fn is_orphan_told(&self) -> bool {
        self.orphan.is_some_and(|orphan| orphan.told)
    }

    /// Marks the orphan as reported. Returns whether it was reported before.
    pub(crate) fn tell_orphan(&mut self) -> bool {
        self.orphan.as_mut().is_some_and(|orphan| std::mem::replace(&mut orphan.told, true))
    }

    #[cfg(test)]
    pub(super) fn of_one_that_was_made() -> Self {
        Self { made: true, ..Self::default() }
    }

    /// Whether the memory must be kept after the Service is gone.
    pub(crate) fn outlives_its_service(&self) -> bool {
        self.orphan.is_some() || self.made || self.removes()
    }

    fn start(&mut self, work: Work, ask: &Ask) -> Vec<Fact> {
        // A cancelled removal must not suppress the Events of the new work.
        if self.work.is_some_and(|(under_way, _)| under_way >= work && under_way != Work::Remove) {
            return Vec::new();
        }
        self.work = Some((work, ask.at));
        match work {
            Work::Hosts | Work::Remove => Vec::new(),
            Work::Build => {
                let mut news = self.begins(Fact::Ensuring, ask.at);
                news.extend(ask.hosts.is_empty().then(|| Fact::NoTargets(ask.unmatched.clone())));
                news
            }
        }
    }

    fn finish(&mut self, ask: &Ask) -> Vec<Fact> {
        self.told.over(Topic::Progress);
        match self.work.take().map(|(work, _since)| work) {
            None | Some(Work::Remove) => Vec::new(),
            Some(Work::Build) => vec![Fact::Ensured],
            Some(Work::Hosts) if ask.hosts.is_empty() => vec![Fact::NoTargets(ask.unmatched.clone())],
            // Only other attributes of the same nodes changed, such as their zones.
            Some(Work::Hosts) if self.settled.as_ref().is_some_and(|it| it.hosts == ask.hosts) => Vec::new(),
            Some(Work::Hosts) => vec![Fact::Updated],
        }
    }

    fn hosts_since(&self) -> Option<Duration> {
        self.work.filter(|(work, _)| *work == Work::Hosts).map(|(_, since)| since)
    }

    /// Whether the load balancer serves traffic although some of its parts do not.
    pub(crate) fn is_degraded(&self) -> bool {
        self.settled.as_ref().is_some_and(|settled| settled.state == State::Degraded)
    }

    /// Returns the Events about the state of the load balancer, and its current problem.
    fn doubts(&mut self, answer: &EnsureResult, now: Duration) -> (Vec<Fact>, Option<Fact>) {
        self.told.over(Topic::Hosts);
        match answer.state {
            State::Degraded => {
                let text = format!("the load balancer serves, but is degraded{}", tail(&answer.why));
                (self.trouble(&Operation::Sync, &text, now), Some(Fact::Failed(Operation::Sync, text)))
            }
            State::Active
            | State::Pending
            | State::Error
            | State::Deleting
            | State::Absent
            | State::Unknown => {
                self.told.over(Topic::Work);
                (Vec::new(), None)
            }
        }
    }
}

fn tail(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(": {why}") }
}

#[cfg(test)]
mod tests;
