//! Doorbells: how the engine learns which of many queues have been posted to, without looking at
//! each.
//!
//! A [`Bell`] hangs at every queue. Ringing one links it into a list, once, without a lock; the
//! engine takes the whole list. A bell is silenced before its queue is drained, so that a post
//! the drain misses rings again.
//!
//! Invariant: a bell's `rung` is set exactly while it is in the list or about to be linked; from
//! then until it is taken nobody else touches its `next`.

use crossbeam_utils::CachePadded;

use crate::sync::{Arc, AtomicBool, AtomicU32, Mutex, Ordering, lock};

/// No bell: ends the list.
const NONE: u32 = u32::MAX;

/// The bells of one engine.
#[derive(Debug)]
pub struct Doorbells {
    shared: Arc<Shared>,
}

/// The bell of one queue. It is taken down when dropped.
#[derive(Debug)]
pub struct Bell {
    index: u32,
    tag: u32,
    link: Arc<CachePadded<Link>>,
    shared: Arc<Shared>,
}

impl Default for Doorbells {
    fn default() -> Doorbells {
        Doorbells::new()
    }
}

impl Doorbells {
    /// No bell yet.
    pub fn new() -> Doorbells {
        let head = CachePadded::new(AtomicU32::new(NONE));
        Doorbells { shared: Arc::new(Shared { head, table: Mutex::new(Table::default()) }) }
    }

    /// A new bell; `tag` is what [`take`](Doorbells::take) says of it.
    pub fn hang(&self, tag: u32) -> Bell {
        let link = Arc::new(CachePadded::new(Link {
            next: AtomicU32::new(NONE),
            rung: AtomicBool::new(false),
        }));
        let index = lock(&self.shared.table).insert(Hook { tag, link: link.clone(), down: false });
        Bell { index, tag, link, shared: self.shared.clone() }
    }

    /// Whether no bell has rung: one load.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.shared.head.load(Ordering::Acquire) == NONE
    }

    /// Appends the tags of the bells that have rung, in the order they rang, and silences them.
    /// What was posted before a bell rang is visible afterwards.
    pub fn take(&self, tags: &mut Vec<u32>) {
        if self.is_empty() {
            return;
        }
        // Before the list is taken: who drops a bell has to find it either listed or silent.
        let mut table = lock(&self.shared.table);
        let first = tags.len();
        let mut index = self.shared.head.swap(NONE, Ordering::AcqRel);
        while index != NONE {
            let hook = table.hooks[index as usize].as_ref().expect("a bell in the list is kept");
            // The bell may be linked again as soon as it is silent.
            let next = hook.link.next.load(Ordering::Relaxed);
            // A swap, not a store: it reads what a ringer wrote that found the bell rung already,
            // and so sees that ringer's post.
            hook.link.rung.swap(false, Ordering::AcqRel);
            if hook.down {
                table.remove(index);
            } else {
                tags.push(hook.tag);
            }
            index = next;
        }
        tags[first..].reverse();
    }
}

impl Bell {
    /// What [`take`](Doorbells::take) says of it.
    pub fn tag(&self) -> u32 {
        self.tag
    }

    /// Says that something was posted to the queue. Call it after publishing.
    #[inline]
    pub fn ring(&self) {
        if self.link.rung.swap(true, Ordering::AcqRel) {
            return;
        }
        let head = &self.shared.head;
        // Mostly the engine has taken what rang before.
        let mut next = NONE;
        loop {
            self.link.next.store(next, Ordering::Relaxed);
            // Bells are only ever taken all at once, so that an index which was at the head, was
            // taken and is back again still has a proper list behind it.
            match head.compare_exchange_weak(next, self.index, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => next = now,
            }
        }
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        let mut table = lock(&self.shared.table);
        if !self.link.rung.load(Ordering::Acquire) {
            table.remove(self.index);
        } else if let Some(hook) = &mut table.hooks[self.index as usize] {
            // The list runs through it: its place stays taken until the list is.
            hook.down = true;
        }
    }
}

/// What the bells and the engine see.
#[derive(Debug)]
struct Shared {
    /// The bell that rang last.
    head: CachePadded<AtomicU32>,
    table: Mutex<Table>,
}

/// A bell's part of the list.
#[derive(Debug)]
struct Link {
    /// The bell that rang before.
    next: AtomicU32,
    rung: AtomicBool,
}

/// Every bell by its index.
#[derive(Debug, Default)]
struct Table {
    hooks: Vec<Option<Hook>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Hook {
    tag: u32,
    link: Arc<CachePadded<Link>>,
    /// The bell is gone, but still in the list.
    down: bool,
}

impl Table {
    fn insert(&mut self, hook: Hook) -> u32 {
        if let Some(index) = self.free.pop() {
            self.hooks[index as usize] = Some(hook);
            return index;
        }
        self.hooks.push(Some(hook));
        (self.hooks.len() - 1) as u32
    }

    fn remove(&mut self, index: u32) {
        self.hooks[index as usize] = None;
        self.free.push(index);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn taken(doorbells: &Doorbells) -> Vec<u32> {
        let mut tags = Vec::new();
        doorbells.take(&mut tags);
        tags
    }

    #[test]
    fn bells_are_taken_in_the_order_they_rang_and_once() {
        let doorbells = Doorbells::new();
        let bells: Vec<Bell> = (10..14).map(|tag| doorbells.hang(tag)).collect();
        assert!(doorbells.is_empty());
        for index in [2, 0, 2, 3, 0] {
            bells[index].ring();
        }
        assert!(!doorbells.is_empty());
        assert_eq!(taken(&doorbells), [12, 10, 13]);
        assert!(doorbells.is_empty());
        assert!(taken(&doorbells).is_empty());
    }

    #[test]
    fn a_taken_bell_rings_again() {
        let doorbells = Doorbells::new();
        let bell = doorbells.hang(1);
        bell.ring();
        assert_eq!(taken(&doorbells), [1]);
        bell.ring();
        assert_eq!(taken(&doorbells), [1]);
    }

    #[test]
    fn a_bell_dropped_while_it_is_in_the_list_does_not_cut_the_list() {
        let doorbells = Doorbells::new();
        let (first, second, third) = (doorbells.hang(1), doorbells.hang(2), doorbells.hang(3));
        for bell in [&first, &second, &third] {
            bell.ring();
        }
        drop(second);
        let fourth = doorbells.hang(4);
        fourth.ring();
        assert_eq!(taken(&doorbells), [1, 3, 4]);
        let fifth = doorbells.hang(5);
        assert_eq!(fifth.index, 1, "the place is free after the list was taken");
        fifth.ring();
        assert_eq!(taken(&doorbells), [5]);
    }

    #[test]
    fn a_silent_bell_gives_its_place_back_at_once() {
        let doorbells = Doorbells::new();
        drop(doorbells.hang(1));
        assert_eq!(doorbells.hang(2).index, 0);
    }

    #[test]
    fn many_ringers_lose_nothing() {
        const RINGERS: u32 = 4;
        const POSTS: u32 = 20_000;
        let doorbells = Doorbells::new();
        let posted: Vec<AtomicU32> = (0..RINGERS).map(|_| AtomicU32::new(0)).collect();
        std::thread::scope(|scope| {
            for (tag, posted) in (0..).zip(&posted) {
                let bell = doorbells.hang(tag);
                scope.spawn(move || {
                    for _ in 0..POSTS {
                        posted.fetch_add(1, Ordering::Relaxed);
                        bell.ring();
                    }
                    // Held until the taker has seen the last post.
                    while posted.load(Ordering::Relaxed) != NONE {
                        std::thread::yield_now();
                    }
                });
            }
            let mut left = RINGERS;
            let mut tags = Vec::new();
            while left > 0 {
                doorbells.take(&mut tags);
                for tag in tags.drain(..) {
                    let posted = &posted[tag as usize];
                    if posted.load(Ordering::Relaxed) == POSTS {
                        posted.store(NONE, Ordering::Relaxed);
                        left -= 1;
                    }
                }
                std::thread::yield_now();
            }
        });
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use ::loom::thread;

    use super::*;

    /// Posts to as many queues as there are counters, from a thread each, while the engine takes.
    fn no_post_is_missed<const QUEUES: usize>(posts: [u32; QUEUES], takes: u32) {
        let doorbells = Doorbells::new();
        let posted = Arc::new([(); QUEUES].map(|()| AtomicU32::new(0)));
        let ringers: Vec<_> = (0..QUEUES)
            .map(|queue| {
                let bell = doorbells.hang(queue as u32);
                let (posted, posts) = (posted.clone(), posts[queue]);
                thread::spawn(move || {
                    for count in 1..=posts {
                        posted[queue].store(count, Ordering::Relaxed);
                        bell.ring();
                    }
                    bell
                })
            })
            .collect();
        let mut seen = [0; QUEUES];
        let mut take = || {
            let mut tags = Vec::new();
            doorbells.take(&mut tags);
            for tag in tags {
                seen[tag as usize] = posted[tag as usize].load(Ordering::Relaxed);
            }
        };
        for _ in 0..takes {
            take();
        }
        let bells: Vec<Bell> = ringers.into_iter().map(|ringer| ringer.join().unwrap()).collect();
        take();
        assert_eq!(seen, posts);
        drop(bells);
    }

    #[test]
    fn a_post_the_engine_misses_rings_again() {
        ::loom::model(|| no_post_is_missed([3], 2));
    }

    #[test]
    fn two_queues_ring_while_the_engine_takes() {
        ::loom::model(|| no_post_is_missed([1, 1], 1));
    }

    #[test]
    fn a_bell_dropped_while_the_engine_takes_leaves_the_list_whole() {
        ::loom::model(|| {
            let doorbells = Doorbells::new();
            let (kept, dropped) = (doorbells.hang(0), doorbells.hang(1));
            let ringer = thread::spawn(move || {
                dropped.ring();
                drop(dropped);
            });
            kept.ring();
            let mut tags = Vec::new();
            doorbells.take(&mut tags);
            ringer.join().unwrap();
            doorbells.take(&mut tags);
            tags.retain(|tag| *tag == 0);
            assert_eq!(tags, [0]);
        });
    }
}
