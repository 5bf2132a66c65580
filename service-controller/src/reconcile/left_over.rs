//! The corridor for load balancers whose Service is not there, or none of ours any more.

use std::{
    collections::BTreeSet,
    sync::{MutexGuard, PoisonError},
    time::Duration,
};

use controller_core::{
    brake::{self, Brake, Limits},
    start::{Holdings, Share},
};
use tokio::time::Instant;
use tracing::warn;

use super::{BREATH, Reconciler};
use crate::{
    explain,
    plan::{
        News, Step,
        cloud::Balancer,
        left_over::{Orphans, Release, Standing, Verdict, judge, there},
        memory::{Memory, Next, Topic},
        service::ServiceId,
        spec::Takeover,
    },
    requeue::Error,
};

/// Within one window so many per cent of the load balancers may go that no Service wants any more …
const SHARE: usize = 30;
/// … and never more than this.
const NUMBER: usize = 10;
/// The window, if orphans are only told: for those that this process made itself.
const WINDOW: Duration = Duration::from_hours(1);
/// Its name among the brakes.
const BRAKE: &str = "orphans";
/// What the brake holds is asked about again after this.
const HELD: Duration = Duration::from_mins(5);

/// What shall go though its Service is gone, and how many of them may.
#[derive(Debug)]
pub(super) struct Sweep {
    brake: Brake,
    /// For which the brake was made.
    holdings: Holdings,
    /// Those that shall go and may not yet.
    waiting: BTreeSet<ServiceId>,
}

impl Sweep {
    /// Nothing shall go yet. Orphans wait at least as long as the window, so that a new brake holds none of them any longer.
    pub(super) fn new(orphans: Orphans, now: Instant) -> Self {
        Self {
            brake: Brake::new(limits(orphans), now),
            holdings: Holdings::default(),
            waiting: BTreeSet::new(),
        }
    }
}

fn limits(orphans: Orphans) -> Limits {
    let window = match orphans {
        Orphans::Report => WINDOW,
        Orphans::DeleteAfter(age) => age,
    };
    Limits { share: SHARE, number: NUMBER, window }
}

impl Reconciler {
    /// One look at what is left of a Service that the mirror does not show. `None`: nothing is left to do.
    pub(super) async fn left_over(
        &self,
        id: &ServiceId,
        memory: &mut Memory,
        seen: Option<&[Balancer]>,
    ) -> Result<Option<Next>, Error> {
        let (ledger, object) = (&self.executor.ledger, id.object());
        memory.wishes_nothing();
        if memory.removed {
            ledger.settles(&object);
            self.waits_no_more(id);
            self.executor.tell(id, &memory.released());
            return Ok(None);
        }
        let now = self.started.elapsed();
        let there = there(seen.unwrap_or_default());
        if there.is_empty() && !memory.made && !memory.removes() {
            ledger.settles(&object);
            self.waits_no_more(id);
            memory.calm();
            // Then it is forgotten.
            return Ok(memory.release_lasts(now).map(Next::After));
        }
        ledger.plans(&object, &"delete, if its Service is gone");
        let doubt = memory.orphan_doubt(now);
        // What a person removed takes no more with it than parts that nobody sees: it needs no brake, and holds no other.
        let went = seen.is_some() && memory.orphan_went(!there.is_empty());
        if let Some(doubt) = doubt {
            return Ok(Some(Next::After(doubt)));
        }
        if let Some(rest) = memory.held(now) {
            ledger.stays(&object);
            return Ok(Some(Next::After(rest)));
        }
        let standing = self.executor.standing(id, &self.mirrors.reading).await?;
        let release = self.mirrors.release(id);
        let verdict = judge(standing, memory, (self.orphans, &release), now);
        let next = self.as_judged(id, memory, (&there, went), verdict).await?;
        if let Release::Misnamed(given) = release
            && standing == Standing::Gone
            && !memory.removes()
            && !memory.removed
        {
            self.refuse(id, memory, given);
        }
        Ok(next)
    }

    /// `there`: what is shown; `went`: a person removed it.
    async fn as_judged(
        &self,
        id: &ServiceId,
        memory: &mut Memory,
        (there, went): (&[String], bool),
        verdict: Verdict,
    ) -> Result<Option<Next>, Error> {
        let (ledger, object) = (&self.executor.ledger, id.object());
        match verdict {
            Verdict::Remove(_) | Verdict::RemoveOrphan | Verdict::RemoveReleased if self.dry_run => {
                ledger.rests(&object);
                Ok(Some(Next::After(HELD)))
            }
            Verdict::Leave => {
                ledger.settles(&object);
                self.waits_no_more(id);
                *memory = Memory::default();
                Ok(None)
            }
            Verdict::Wait => Ok(Some(Next::After(BREATH))),
            Verdict::Report(again) => {
                let (news, told) = (News::Orphaned(there.join(", ")), memory.tell_orphan());
                ledger.waits(&object, &explain::waiting(&news, !told));
                if !told {
                    self.executor.tell(id, &[news]);
                }
                if again.is_some() {
                    self.sweep().waiting.insert(id.clone());
                }
                Ok(again.map(Next::After))
            }
            Verdict::Remove(step) if went => self.removal(id, memory, &step).await.map(Some),
            Verdict::Remove(step) => self.remove(id, memory, &step).await.map(Some),
            Verdict::RemoveOrphan | Verdict::RemoveReleased if self.executor.knows(&id.uid).await? => {
                let why = "a Service of another name has its UID: the load balancer stays";
                self.waits(id, memory, &News::OrphanHeld(why.to_owned()));
                Ok(Some(Next::After(HELD)))
            }
            Verdict::RemoveOrphan => self.remove(id, memory, &Step::LeftOver).await.map(Some),
            Verdict::RemoveReleased => {
                // What is not shown may be there all the same.
                if !there.is_empty() {
                    self.executor.tell(id, &[News::OrphanReleased(there.join(", "))]);
                }
                self.removal(id, memory, &Step::LeftOver).await.map(Some)
            }
        }
    }

    /// It stays though a person has released one of its UID: that is nearer than why it stays.
    fn refuse(&self, id: &ServiceId, memory: &mut Memory, given: String) {
        let name = given.clone();
        let refused = News::ReleaseRefused(given, id.clone());
        let said = memory.trouble_named(Topic::Release, &name, refused.clone(), self.started.elapsed());
        self.executor.ledger.waits(&id.object(), &explain::waiting(&refused, !said.is_empty()));
        self.executor.tell(id, &said);
    }

    async fn remove(&self, id: &ServiceId, memory: &mut Memory, step: &Step) -> Result<Next, Error> {
        if *step == Step::LeftOver
            && !memory.removes()
            && let Some(rest) = self.brake(id, memory)
        {
            return Ok(Next::After(rest));
        }
        self.removal(id, memory, step).await
    }

    async fn removal(&self, id: &ServiceId, memory: &mut Memory, step: &Step) -> Result<Next, Error> {
        self.waits_no_more(id);
        self.goes(id);
        warn!(service = %id, uid = %id.uid, "Removes a load balancer that no Service wants");
        let now = self.started.elapsed();
        self.executor.delete(id, (memory, now), &Takeover::None, step).await
    }

    /// What holds it, and for how long. `None`: it may go.
    fn brake(&self, id: &ServiceId, memory: &mut Memory) -> Option<Duration> {
        self.begin_sweep(Instant::now());
        let (now, all) = (Instant::now(), self.mirrors.n_balancers(|uid| self.shards.has(uid)));
        let vanished = self.vanished();
        let mut sweep = self.sweep();
        sweep.waiting.insert(id.clone());
        sweep.waiting.extend(vanished);
        sweep.waiting.retain(|id| self.mirrors.service(id).is_none() && self.shards.has(&id.uid));
        let wanted = sweep.waiting.len();
        let verdict = sweep.brake.ask(now, all.max(wanted), wanted);
        if !matches!(verdict, brake::Verdict::Tripped { .. }) {
            self.brakes.holds(BRAKE, Vec::new());
        }
        match verdict {
            brake::Verdict::Tripped { allowance } => {
                drop(sweep);
                let why = format!(
                    "{wanted} of {all} load balancers have no Service any more, more than the {allowance} that may go at once: none is \
                     removed; delete those at the cloud that nobody needs"
                );
                self.hold(id, memory, why);
                return Some(HELD);
            }
            // A new brake lets go little by little, for what an earlier process may have let go; what this one made it knows.
            brake::Verdict::Later { after } if !memory.made => return Some(after),
            brake::Verdict::Later { .. } | brake::Verdict::Go => (),
        }
        sweep.waiting.remove(id);
        sweep.brake.went(now);
        None
    }

    /// One shall not go any more, or has gone. With the last one there is nothing left to hold.
    fn waits_no_more(&self, id: &ServiceId) {
        let mut sweep = self.sweep();
        if sweep.waiting.remove(id) && sweep.waiting.is_empty() {
            drop(sweep);
            self.brakes.holds(BRAKE, Vec::new());
        }
    }

    /// A replica that has come to a shard has removed nothing there, but another one may have: the brake begins anew. Who works alone has
    /// had its brake since it started.
    pub(super) fn begin_sweep(&self, now: Instant) {
        let (mut sweep, shards) = (self.sweep(), &self.shards);
        let limits = limits(self.orphans).of_share(shards.held(), shards.count());
        match sweep.holdings.look(shards) {
            Share::Anew if shards.count() > 1 => sweep.brake = Brake::new(limits, now),
            Share::Anew | Share::Other => sweep.brake.limit(limits),
            Share::Same => (),
        }
    }

    /// Its removal begins: until the worker puts its memory back, it counts no more among those that wait for theirs.
    pub(super) fn goes(&self, id: &ServiceId) {
        self.memories().by_service.remove(id);
    }

    /// Told at each of them, and once for all.
    fn hold(&self, id: &ServiceId, memory: &mut Memory, why: String) {
        self.brakes.holds(BRAKE, vec![why.clone()]);
        let held = News::OrphanHeld(why);
        let news = memory.once(held.clone(), self.started.elapsed());
        self.executor.ledger.waits(&id.object(), &explain::waiting(&held, !news.is_empty()));
        news.iter().for_each(|news| self.executor.tell_all(news));
        self.executor.tell(id, &news);
    }

    /// Those that this process made and whose Services went without it.
    fn vanished(&self) -> Vec<ServiceId> {
        let memories = self.memories();
        // Of a shard that another replica had meanwhile, which may have removed it.
        let is_known = |uid: &str| {
            let shard = self.shards.of(uid);
            self.shards.since(shard).is_some_and(|since| memories.since.get(&shard) == Some(&since))
        };
        let gone = |(id, memory): &(&ServiceId, &Memory)| {
            memory.made && !memory.removes() && self.mirrors.service(id).is_none() && is_known(&id.uid)
        };
        memories.by_service.iter().filter(gone).map(|(id, _memory)| id.clone()).collect()
    }

    fn sweep(&self) -> MutexGuard<'_, Sweep> {
        // Every operation on it is a single one: it is consistent whatever happened.
        self.sweep.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
