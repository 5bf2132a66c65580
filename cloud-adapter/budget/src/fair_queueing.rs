//! Order of the leaves at one bucket: start-time fair queueing. A call gets the start tag S = max(V, F of its leaf), and the call with the
//! smallest S goes first. V is the S of the last served call. After a call, F of its leaf is S + cost / weight.
//!
//! A leaf that was idle resumes at V, without credit or debt.
//!
//! Source: Goyal, Vin, Cheng, "Start-time Fair Queueing", SIGCOMM 1996.

/// Tag units per token at weight 1.
const TOKEN: u64 = 1 << 20;

/// Index of a leaf. Leaves are never removed, because the classes and controllers bound their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LeafId(pub(crate) usize);

#[derive(Clone, Debug, Default)]
pub(crate) struct StartTags {
    /// V: start tag of the last served call.
    virtual_time: u64,
    /// F: finish tag by leaf.
    finish: Vec<u64>,
}

impl StartTags {
    /// S: start tag of the next call of a leaf.
    pub(crate) fn start(&self, LeafId(leaf): LeafId) -> u64 {
        self.finish.get(leaf).map_or(self.virtual_time, |finish| self.virtual_time.max(*finish))
    }

    pub(crate) fn served(&mut self, leaf: LeafId, cost: u64, weight: u32) {
        let start = self.start(leaf);
        let LeafId(index) = leaf;
        if self.finish.len() <= index {
            self.finish.resize(index + 1, 0);
        }
        if let Some(finish) = self.finish.get_mut(index) {
            *finish = start.saturating_add((cost.saturating_mul(TOKEN) / u64::from(weight)).max(1));
        }
        self.virtual_time = start;
    }
}
