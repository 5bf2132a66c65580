//! What is remembered of one Service between two looks at it. All of it may be lost at any time: a restart costs one
//! question to the adapter per Service, which it answers from its own memory.

mod budget;
mod guess;
mod narrowed;
mod pace;
mod remark;
mod settled;
mod told;
mod topic;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use self::{budget::BudgetWaits, guess::Guess, narrowed::Narrowed, pace::Pace, remark::Remark, told::Told};
pub(crate) use self::{settled::Settled, topic::Topic};
use super::{
    Ask, News, Step, Why,
    cloud::{Answer, Balancer, Removal, State},
    compat::Foreign,
    features::Features,
    service::{Class, FINALIZER, Family, Ingress, Service},
    spec::Shape,
    wanted::{Judged, Wanted},
};

/// How long a difference between the mirror and the adapter's own word is believed to be the mirror's lag.
pub(crate) const LAG: Duration = Duration::from_mins(5);

/// A load balancer that was just removed may be shown for a while yet, above all by an adapter that comes back.
const ORPHAN_AFTER: Duration = Duration::from_mins(1);

/// One that this process made is no lag of the mirror. It waits only so that many that lose their Services at once are seen as many.
const CROWD: Duration = Duration::from_secs(5);

/// Looks in a row in which the API server does not do the same thing, until people hear of it.
const LASTS: u32 = 3;

/// When an adapter does not say when to ask again.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// What is remembered of one Service.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Memory {
    /// The last wish that the adapter took up. It stays in force while what is asked for now cannot be done.
    pub(crate) good: Option<Arc<Wanted>>,
    /// The digest of the wish that the adapter refused last, and when.
    refused: Option<(String, Duration)>,
    /// [`Self::good`] was never asked for by the Service: it was read off what is there.
    guess: Option<Guess>,
    /// This process asked for a load balancer, and was not told since that nothing is left.
    pub(crate) made: bool,
    /// It is of another's class, and yet the load balancer in its status is ours.
    pub(crate) claimed: bool,
    /// It was of another's class while something of ours was left that served it no more: that proves whose the load balancer is, and not
    /// whose the finalizer.
    pub(crate) of_another: bool,
    /// The adapter's last word that what we asked for is there.
    pub(crate) settled: Option<Settled>,
    /// The adapter's word that nothing is left.
    pub(crate) removed: bool,
    /// What is going on, and since when.
    work: Option<(Work, Duration)>,
    /// What people were told last, of each kind.
    told: Told,
    /// The adapter asked us not to call before this, since the start of the process.
    held_until: Option<Duration>,
    /// How long it has waited for its turn at the cloud.
    budget_waits: BudgetWaits,
    /// The mirror shows a load balancer that nobody wants.
    orphan: Option<Orphan>,
    /// What the mirror still showed when the adapter said that nothing is left.
    gone: Option<Gone>,
    /// What is to be said of annotations of another controller.
    foreign: Remark<Foreign>,
    /// Whether its load balancer has the adapter's name and not the template's.
    unnamed: Remark<bool>,
    /// The only family of what is there, where the adapter cannot add the one that is merely preferred.
    narrowed: Option<Narrowed>,
    /// The ID of which the adapter said that the Service cannot have that load balancer, as another controller noted it.
    pub(crate) gone_id: Option<String>,
    /// Our own last write, as long as the cache may not show it.
    written: Option<Written>,
    status_pace: Pace,
    finalizer_pace: Pace,
    release_pace: Pace,
    /// What the API server did not do at the last look, and at how many before that.
    not_done: Option<(&'static str, u32)>,
    /// It was of another's class at a look since our finalizer is on it.
    pub(super) classed: bool,
    /// Since when another's finalizer holds it, which shall go.
    held_since: Option<Duration>,
}

/// A load balancer that nobody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Orphan {
    /// Since when, since the start of the process.
    since: Duration,
    /// People know of it.
    told: bool,
    /// The mirror has shown it meanwhile.
    shown: bool,
}

/// Load balancers that are not there any more, whatever the mirror shows for a while yet.
#[derive(Clone, Debug, PartialEq)]
struct Gone {
    vendor_ids: BTreeSet<String>,
    /// Since the start of the process.
    at: Duration,
}

/// Something that takes more than one look, the larger one last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    Hosts,
    Build,
    Remove,
}

#[derive(Clone, Debug, PartialEq)]
struct Written {
    /// The version in the cache when we wrote.
    over: String,
    finalizer: bool,
    ingress: Vec<Ingress>,
}

/// What follows from an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// What people shall hear, in order.
    pub(crate) news: Vec<News>,
    pub(crate) next: Next,
    /// Other nodes are behind it now; so long after they were asked for first.
    pub(crate) hosts_updated: Option<Duration>,
    /// Other nodes should be behind it, and what there is serves nobody.
    pub(crate) hosts_failed: bool,
    /// What is wrong, whether that is news or not.
    pub(crate) trouble: Option<News>,
    /// What the adapter waits for, in its words; mostly nothing.
    pub(crate) waits: String,
}

/// When to look again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Next {
    /// At once: there may be more to do.
    #[default]
    Now,
    /// The adapter works on it.
    After(Duration),
    /// Something is wrong.
    Backoff,
}

impl Outcome {
    fn later(waits: String, next: Next) -> Self {
        Self { waits, next, ..Self::default() }
    }
}

impl Memory {
    /// The Service with our own writes that the cache does not show yet, so that none is repeated.
    pub(crate) fn overlay(&mut self, mut service: Service) -> Service {
        self.written = self.written.take().filter(|written| written.over == service.version);
        if let Some(written) = &self.written {
            service.finalizer = written.finalizer;
            service.ingress.clone_from(&written.ingress);
        }
        service
    }

    /// Notes that `service`, as it is now, was written over the version in the cache.
    pub(crate) fn wrote(&mut self, service: &Service) {
        self.written = Some(Written {
            over: service.version.clone(),
            finalizer: service.finalizer,
            ingress: service.ingress.clone(),
        });
    }

    /// Takes note of what the mirror shows.
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
        // A removal under way would change the answer.
        if !self.removes() && !self.removed {
            let of_another = service.class == Class::Others;
            self.claimed = of_another && cloud.iter().any(|it| service.shows(&it.ingress));
            // Nothing of ours is left on it: what this process made before says no more whose the finalizer is.
            self.made &= !(of_another && cloud.is_empty());
        }
        let left = self.made || self.removes() || self.removed || cloud.iter().any(|it| !self.is_gone(it));
        self.of_another |= service.class == Class::Others && !self.claimed && left;
    }

    /// Why what the mirror shows is not what the adapter confirmed, unless it was asked about exactly this already.
    pub(crate) fn drift(&self, cloud: &[Balancer], now: Duration) -> Option<String> {
        self.settled.as_ref()?.drift(cloud, now)
    }

    /// The adapter does not take up this wish, and only a change of it, or time, can help.
    pub(crate) fn refuse(&mut self, ask: &Ask) {
        let digest = &ask.wanted.shape.digest;
        if self.good.as_ref().is_some_and(|good| good.shape.digest == *digest) {
            // What it took up before it does not any more: there is nothing to go back to.
            self.good = None;
        }
        if self.good.is_some() {
            self.work = None;
        }
        self.refused = Some((digest.clone(), ask.at));
    }

    /// What the adapter refused may be possible now: it is asked for again at once.
    pub(crate) fn may_be_granted(&mut self) {
        self.refused = None;
    }

    /// The adapter cannot give what is there the second family, which is merely preferred: the one that it has is asked for from now
    /// on. Whether that can be done.
    pub(crate) fn narrow(&mut self, ask: &Ask, family: Option<Family>, of: (&Service, &Features)) -> bool {
        let Some(family) = family.filter(|_| ask.wanted.may_narrow) else { return false };
        self.narrowed = Some(Narrowed::new(family, of));
        if self.good.is_some() {
            self.work = None;
        }
        true
    }

    /// Two families are asked for again if the Service prefers something else by now, or the adapter can do something else. `features`:
    /// `None`: it was never reached.
    pub(crate) fn widen(&mut self, service: &Service, features: Option<&Features>) {
        let holds = |it: &Narrowed| features.is_none_or(|features| it.holds((service, features)));
        self.narrowed = self.narrowed.take().filter(holds);
    }

    /// The only family that is asked for.
    pub(crate) fn family(&self) -> Option<Family> {
        self.narrowed.as_ref().map(|it| it.to)
    }

    /// Whether the adapter refused this wish, so lately that it need not be asked again.
    pub(crate) fn is_refused(&self, shape: &Shape, now: Duration) -> bool {
        let lately = |at: Duration| now.saturating_sub(at) < LAG;
        self.refused.as_ref().is_some_and(|(digest, at)| *digest == shape.digest && lately(*at))
    }

    /// As it is from the moment in which the adapter is asked: whoever counts what there may be counts this one.
    pub(crate) fn begun(&self) -> Self {
        Self { made: true, ..self.clone() }
    }

    /// What people hear before the adapter is asked. The load balancer may exist from now on.
    pub(crate) fn asking(&mut self, ask: &Ask) -> Vec<News> {
        self.removed = false;
        self.made = true;
        self.of_another = false;
        match ask.why {
            // It was said when it was refused.
            Why::Changed if self.refused.as_ref().is_some_and(|(it, _)| *it == ask.wanted.shape.digest) => {
                self.work = Some((Work::Build, ask.at));
                Vec::new()
            }
            Why::Changed | Why::Missing => self.start(Work::Build, ask),
            Why::Hosts => self.start(Work::Hosts, ask),
            Why::FirstLook | Why::Drift(_) => Vec::new(),
        }
    }

    /// What follows from the answer to an ensure.
    pub(crate) fn answered(&mut self, ask: &Ask, answer: Answer, seen: Option<&[Balancer]>) -> Outcome {
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
                // What it stands in for is still wrong.
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
                news.extend(self.budget_waits.answered(answer.budget, ask.at).map(News::WaitsForBudget));
                let next = Next::After(answer.retry_after.unwrap_or(ASK_AGAIN));
                Outcome { news, ..Outcome::later(answer.why, next) }
            }
            State::Error | State::Deleting | State::Absent | State::Unknown => {
                self.settled = None;
                let text = format!("the load balancer is {}{}", answer.state, tail(&answer.why));
                news.extend(self.trouble(&ask.step(), &text, ask.at));
                let (hosts_failed, trouble) = (ask.why == Why::Hosts, Some(News::Failed(ask.step(), text)));
                let next = answer.retry_after.map_or(Next::Backoff, Next::After);
                Outcome { news, next, hosts_failed, trouble, ..Outcome::default() }
            }
        }
    }

    /// What people hear before the removal is asked for. Whatever was confirmed is void from now on.
    pub(crate) fn removing(&mut self, now: Duration) -> Vec<News> {
        self.settled = None;
        self.good = None;
        (self.refused, self.guess) = (None, None);
        self.narrowed = None;
        match self.work.replace((Work::Remove, Duration::ZERO)) {
            Some((Work::Remove, _)) => Vec::new(),
            Some((Work::Hosts | Work::Build, _)) | None => {
                self.budget_waits = BudgetWaits::default();
                self.begins(News::Deleting, now)
            }
        }
    }

    /// Whether a removal was begun that has not ended.
    pub(crate) fn removes(&self) -> bool {
        self.work.is_some_and(|(work, _)| work == Work::Remove) && !self.removed
    }

    /// How much longer another controller may take, whose finalizer holds it. `None`: so long that people should hear of it.
    pub(crate) fn patience(&mut self, now: Duration) -> Option<Duration> {
        let since = *self.held_since.get_or_insert(now);
        (since + LAG).checked_sub(now).filter(|rest| !rest.is_zero())
    }

    /// What follows from the answer to a delete that was asked for at this time since the start of the process.
    pub(crate) fn removal(&mut self, step: &Step, answer: &Removal, at: Duration) -> Outcome {
        match answer.state {
            State::Absent => {
                self.removed = true;
                self.made = false;
                Outcome::default()
            }
            State::Deleting | State::Pending => {
                let words = self.budget_waits.answered(answer.budget.clone(), at);
                let again = self.told.again(Topic::Progress, at);
                let news = again.into_iter().chain(words.map(News::WaitsForBudget)).collect();
                let next = Next::After(answer.retry_after.unwrap_or(ASK_AGAIN));
                Outcome { news, ..Outcome::later(answer.why.clone(), next) }
            }
            State::Error | State::Active | State::Degraded | State::Unknown => {
                let text = format!("the load balancer is {} and not gone{}", answer.state, tail(&answer.why));
                let (news, trouble) = (self.trouble(step, &text, at), News::Failed(step.clone(), text));
                Outcome { news, trouble: Some(trouble), next: Next::Backoff, ..Outcome::default() }
            }
        }
    }

    /// Nothing is left, and we have nothing more to do with it: only the fact that we wrote is kept, and how often.
    pub(crate) fn released(&mut self) -> Vec<News> {
        let (written, release_pace) = (self.written.take(), std::mem::take(&mut self.release_pace));
        *self = Self { written, release_pace, ..Self::default() };
        vec![News::Deleted]
    }

    /// The same, while the Service stays as it is: what the mirror shows of it for a while yet is its lag.
    pub(crate) fn forgotten(&mut self, seen: Option<&[Balancer]>, now: Duration) -> Vec<News> {
        let vendor_ids = seen.into_iter().flatten().map(|it| it.vendor_id.clone()).collect();
        let news = self.released();
        self.gone = Some(Gone { vendor_ids, at: now });
        news
    }

    /// Whether the adapter said already that this one is not there any more.
    pub(crate) fn is_gone(&self, balancer: &Balancer) -> bool {
        self.gone.as_ref().is_some_and(|gone| gone.vendor_ids.contains(&balancer.vendor_id))
    }

    /// What people shall hear that is no trouble: of annotations of another controller, and that its load balancer is not called as the
    /// cluster's template says. `builds`: they hear of the Service anyway.
    pub(crate) fn remarks(&mut self, foreign: &Foreign, judged: &Judged, builds: bool) -> Vec<News> {
        let mut news = Vec::new();
        let foreign = Foreign { refusals: Vec::new(), ..foreign.clone() };
        if self.foreign.is_news(&foreign, builds) {
            let Foreign { understood, ignored, .. } = foreign;
            let rows = [(understood, News::Compatible as fn(_) -> _), (ignored, News::Ignored)];
            let said = rows.into_iter().filter(|(words, _)| !words.is_empty());
            news.extend(said.map(|(words, news)| news(words)));
        }
        if let Some(wanted) = &judged.wanted
            && self.unnamed.is_news(&wanted.unnamed, builds)
            && wanted.unnamed
        {
            news.push(News::Unnamed);
        }
        news
    }

    /// The adapter asks us not to call for so long, whatever happens to the Service meanwhile.
    pub(crate) fn hold(&mut self, now: Duration, delay: Duration) {
        self.held_until = Some(now + delay);
    }

    /// For how much longer the adapter shall not be called.
    pub(crate) fn held(&self, now: Duration) -> Option<Duration> {
        self.held_until.and_then(|until| until.checked_sub(now)).filter(|rest| !rest.is_zero())
    }

    /// All is well: the next trouble is news again.
    pub(crate) fn calm(&mut self) {
        if !self.is_degraded() {
            self.told.over(Topic::Work);
        }
        self.told.over(Topic::Hosts);
        self.held_until = None;
        self.orphan = None;
        self.not_done = None;
    }

    /// Takes note of what the API server did not do. Whether that lasts: what one try finds otherwise than the next nobody needs to hear.
    pub(crate) fn lasts(&mut self, call: &'static str) -> bool {
        let times = self.not_done.filter(|(before, _)| *before == call).map_or(1, |(_, times)| times + 1);
        self.not_done = Some((call, times.min(LASTS)));
        times >= LASTS
    }

    /// What the Service asks for is in force: what was wrong with it is news again.
    pub(crate) fn agree(&mut self) {
        self.told.over(Topic::Wish);
        self.told.over(Topic::Refused);
        (self.refused, self.guess) = (None, None);
    }

    /// For how much longer this status must not be written again.
    pub(crate) fn status_paced(&self, ingress: &[Ingress], now: Duration) -> Option<Duration> {
        self.status_pace.rest(&format!("{ingress:?}"), now)
    }

    /// The status was written.
    pub(crate) fn wrote_status(&mut self, service: &Service, now: Duration) {
        self.status_pace.wrote(&format!("{:?}", service.ingress), now);
        self.wrote(service);
    }

    /// For how much longer our finalizer must not be written again.
    pub(crate) fn finalizer_paced(&self, now: Duration) -> Option<Duration> {
        self.finalizer_pace.rest(FINALIZER, now)
    }

    /// The finalizer was written.
    pub(crate) fn wrote_finalizer(&mut self, service: &Service, now: Duration) {
        self.finalizer_pace.wrote(FINALIZER, now);
        self.wrote(service);
    }

    /// How much longer a load balancer that nobody wants may be only the mirror's lag, or the first of many. `None`: it is an orphan.
    pub(crate) fn orphan_doubt(&mut self, now: Duration) -> Option<Duration> {
        let doubt = if self.made { CROWD } else { ORPHAN_AFTER };
        let orphan = self.orphan.get_or_insert(Orphan { since: now, told: false, shown: false });
        (orphan.since + doubt).checked_sub(now).filter(|rest| !rest.is_zero())
    }

    /// For how long it was seen without a Service.
    pub(crate) fn orphan_for(&self, now: Duration) -> Duration {
        self.orphan.map_or(Duration::ZERO, |orphan| now.saturating_sub(orphan.since))
    }

    /// Takes note of whether the mirror shows it. Whether it did and does not any more: somebody else removed it.
    pub(crate) fn orphan_went(&mut self, shown: bool) -> bool {
        let Some(orphan) = &mut self.orphan else { return false };
        orphan.shown |= shown;
        orphan.shown && !shown
    }

    /// Whether people know of it.
    pub(crate) fn is_orphan_told(&self) -> bool {
        self.orphan.is_some_and(|orphan| orphan.told)
    }

    /// People are told of it now. Whether they knew already.
    pub(crate) fn tell_orphan(&mut self) -> bool {
        self.orphan.as_mut().is_some_and(|orphan| std::mem::replace(&mut orphan.told, true))
    }

    #[cfg(test)]
    pub(super) fn of_one_that_was_made() -> Self {
        Self { made: true, ..Self::default() }
    }

    /// Whether there is more to remember than of a Service that is gone.
    pub(crate) fn outlives_its_service(&self) -> bool {
        self.orphan.is_some() || self.made || self.removes()
    }

    fn start(&mut self, work: Work, ask: &Ask) -> Vec<News> {
        // A removal that was called off is no reason to be silent about what is built now.
        if self.work.is_some_and(|(under_way, _)| under_way >= work && under_way != Work::Remove) {
            return Vec::new();
        }
        self.work = Some((work, ask.at));
        match work {
            Work::Hosts | Work::Remove => Vec::new(),
            Work::Build => {
                let mut news = self.begins(News::Ensuring, ask.at);
                news.extend(ask.hosts.is_empty().then(|| News::NoTargets(ask.unmatched.clone())));
                news
            }
        }
    }

    fn finish(&mut self, ask: &Ask) -> Vec<News> {
        self.told.over(Topic::Progress);
        match self.work.take().map(|(work, _since)| work) {
            None | Some(Work::Remove) => Vec::new(),
            Some(Work::Build) => vec![News::Ensured],
            Some(Work::Hosts) if ask.hosts.is_empty() => vec![News::NoTargets(ask.unmatched.clone())],
            // Something else about the same hosts, such as their zones.
            Some(Work::Hosts) if self.settled.as_ref().is_some_and(|it| it.hosts == ask.hosts) => Vec::new(),
            Some(Work::Hosts) => vec![News::Updated],
        }
    }

    fn hosts_since(&self) -> Option<Duration> {
        self.work.filter(|(work, _)| *work == Work::Hosts).map(|(_, since)| since)
    }

    /// Whether what is there serves, and not all of it does.
    pub(crate) fn is_degraded(&self) -> bool {
        self.settled.as_ref().is_some_and(|settled| settled.state == State::Degraded)
    }

    /// What people shall hear of what is there, and what is wrong with it.
    fn doubts(&mut self, answer: &Answer, now: Duration) -> (Vec<News>, Option<News>) {
        self.told.over(Topic::Hosts);
        match answer.state {
            State::Degraded => {
                let text = format!("the load balancer serves, but is degraded{}", tail(&answer.why));
                (self.trouble(&Step::Sync, &text, now), Some(News::Failed(Step::Sync, text)))
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
