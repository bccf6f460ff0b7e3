//! Five queries of Nexmark, kept up to date step by step.

use std::cmp::Reverse;

use tombolo::{Db, Result, SortedBatch};
use tombolo_typed::{Timers, TypedKeyspace};

use crate::events::{Bid, Event, STEP_MS, TAKEN_BACK_WITHIN, event};
use crate::zset::{Delta, State, distinct, greatest, join, open};

/// Length of a window of query 7.
pub const WINDOW_MS: u64 = 10_000;
/// A day of queries 15 and 16, a short one.
pub const DAY_MS: u64 = 100_000;
/// The category of query 3, and the states of its sellers.
pub const CATEGORY: u64 = 10;
pub const STATES: [&str; 3] = ["OR", "ID", "CA"];

/// What queries 15 and 16 count: bids, bids by rank of price, different bidders and auctions.
pub const COUNTS: [&str; 6] = ["bids", "cheap", "fair", "dear", "bidders", "auctions"];
const BIDDERS: u8 = 4;
const AUCTIONS: u8 = 5;

/// The rank of a price.
pub fn rank(price: u64) -> u8 {
    match price {
        0..10_000 => 1,
        10_000..1_000_000 => 2,
        _ => 3,
    }
}

/// A bid within an auction: when, price, number.
type AuctionBid = (u64, u64, u64);
/// An auction by its id: category, opens, closes.
type AuctionFacts = (u64, u64, u64);

/// The state of all queries, and their results, which are Z-sets as well.
pub struct Queries {
    db: Db,
    /// The number of the next event. Written with what the events before it have changed.
    progress: TypedKeyspace<u8, u64>,
    people: State<(u64, (String, String, String))>,
    auctions_by_seller: State<(u64, u64)>,
    /// Name, city, state, auction.
    q3: State<(String, String, String, u64)>,
    auctions: State<(u64, AuctionFacts)>,
    bids: State<(u64, AuctionBid)>,
    valid_bids: State<((u64, u64), Reverse<u64>, u64)>,
    /// By category: 0 the sum of the winning bids, 1 their number.
    q4: State<(u64, u8)>,
    window_bids: State<(u64, Reverse<u64>, (u64, u64))>,
    windows: Timers<u64>,
    /// Window, price, auction, bidder.
    q7: State<(u64, u64, u64, u64)>,
    /// By day and kind of member.
    day_members: State<(u64, u8, u64)>,
    q15: State<(u64, u8)>,
    channel_members: State<(String, u64, u8, u64)>,
    q16: State<(String, u64, u8)>,
}

/// What a step changes.
#[derive(Default)]
struct Step {
    people: Delta<(u64, (String, String, String))>,
    auctions_by_seller: Delta<(u64, u64)>,
    q3: Delta<(String, String, String, u64)>,
    auctions: Delta<(u64, AuctionFacts)>,
    bids: Delta<(u64, AuctionBid)>,
    valid_bids: Delta<((u64, u64), Reverse<u64>, u64)>,
    q4: Delta<(u64, u8)>,
    window_bids: Delta<(u64, Reverse<u64>, (u64, u64))>,
    q7: Delta<(u64, u64, u64, u64)>,
    day_members: Delta<(u64, u8, u64)>,
    q15: Delta<(u64, u8)>,
    channel_members: Delta<(String, u64, u8, u64)>,
    q16: Delta<(String, u64, u8)>,
}

impl Step {
    /// Inputs, by the keys that the queries want.
    fn take(&mut self, event: Event) {
        match event {
            Event::Person(person) => {
                if STATES.contains(&person.state) {
                    let facts = (person.name, person.city.to_owned(), person.state.to_owned());
                    self.people.add((person.id, facts), 1);
                }
            }
            Event::Auction(auction) => {
                if auction.category == CATEGORY {
                    self.auctions_by_seller.add((auction.seller, auction.id), 1);
                }
                self.auctions.add((auction.id, (auction.category, auction.opens, auction.closes)), 1);
            }
            Event::Bid(bid, weight) => self.take_bid(&bid, weight),
        }
    }

    fn take_bid(&mut self, bid: &Bid, weight: i64) {
        self.bids.add((bid.auction, (bid.at, bid.price, bid.id)), weight);
        let window = bid.at / WINDOW_MS;
        self.window_bids.add((window, Reverse(bid.price), (bid.auction, bid.bidder)), weight);
        let (day, channel) = (bid.at / DAY_MS, bid.channel.to_owned());
        for kind in [0, rank(bid.price)] {
            self.q15.add((day, kind), weight);
            self.q16.add((channel.clone(), day, kind), weight);
        }
        for (kind, member) in [(BIDDERS, bid.bidder), (AUCTIONS, bid.auction)] {
            self.day_members.add((day, kind, member), weight);
            self.channel_members.add((channel.clone(), day, kind, member), weight);
        }
    }
}

impl Queries {
    pub fn open(uri: &str) -> Result<Queries> {
        let db = Db::builder(uri).open().wait()?;
        Ok(Queries {
            progress: TypedKeyspace::open(&db, "progress").wait()?,
            people: open(&db, "people")?,
            auctions_by_seller: open(&db, "auctions by seller")?,
            q3: open(&db, "q3")?,
            auctions: open(&db, "auctions")?,
            bids: open(&db, "bids")?,
            valid_bids: open(&db, "valid bids")?,
            q4: open(&db, "q4")?,
            window_bids: open(&db, "window bids")?,
            windows: Timers::open(&db, "windows").wait()?,
            q7: open(&db, "q7")?,
            day_members: open(&db, "day members")?,
            q15: open(&db, "q15")?,
            channel_members: open(&db, "channel members")?,
            q16: open(&db, "q16")?,
            db,
        })
    }

    pub fn db(&self) -> &Db {
        &self.db
    }

    /// The number of the next event.
    pub fn next_event(&self) -> Result<u64> {
        Ok(self.progress.read(&0, |number| number)?.unwrap_or(0))
    }

    /// Takes the events from `from` on and before `to`: all that follows from them is written at
    /// once, with the place to go on from. So each counts once, however often the process is
    /// killed.
    pub fn step(&self, seed: u64, from: u64, to: u64) -> Result<()> {
        let mut step = Step::default();
        (from..to).for_each(|number| step.take(event(seed, number)));
        self.q3(&mut step)?;
        self.q4(&mut step)?;
        self.q7(&mut step)?;
        self.q15_and_q16(&mut step)?;
        let mut batch = self.db.sorted_batch();
        self.close_windows(&mut step, &mut batch, to * STEP_MS)?;
        step.people.write(&self.people, &mut batch)?;
        step.auctions_by_seller.write(&self.auctions_by_seller, &mut batch)?;
        step.q3.write(&self.q3, &mut batch)?;
        step.auctions.write(&self.auctions, &mut batch)?;
        step.bids.write(&self.bids, &mut batch)?;
        step.valid_bids.write(&self.valid_bids, &mut batch)?;
        step.q4.write(&self.q4, &mut batch)?;
        step.window_bids.write(&self.window_bids, &mut batch)?;
        step.q7.write(&self.q7, &mut batch)?;
        step.day_members.write(&self.day_members, &mut batch)?;
        step.q15.write(&self.q15, &mut batch)?;
        step.channel_members.write(&self.channel_members, &mut batch)?;
        step.q16.write(&self.q16, &mut batch)?;
        self.progress.put_sorted(&mut batch, &0, &to).wait()?;
        batch.publish().wait().map(drop)
    }

    /// Who sells in a category, in three states: people ⋈ auctions.
    fn q3(&self, step: &mut Step) -> Result<()> {
        let Step { people, auctions_by_seller, q3, .. } = step;
        let (left, right) = ((&self.people, &*people), (&self.auctions_by_seller, &*auctions_by_seller));
        join(left, right, |_seller, (name, city, state), auction, weight| {
            q3.add((name.clone(), city.clone(), state.clone(), *auction), weight);
        })
    }

    /// The average of the winning bids by category: auctions ⋈ bids, while open; the greatest of
    /// each auction; sums.
    fn q4(&self, step: &mut Step) -> Result<()> {
        let Step { auctions, bids, valid_bids, q4, .. } = step;
        let (left, right) = ((&self.auctions, &*auctions), (&self.bids, &*bids));
        join(left, right, |auction, (category, opens, closes), (at, price, number), weight| {
            if (opens..closes).contains(&at) {
                valid_bids.add(((*auction, *category), Reverse(*price), *number), weight);
            }
        })?;
        greatest((&self.valid_bids, &*valid_bids), |(_, category), before, after| {
            for (best, weight) in [(before, -1), (after, 1)] {
                if let Some((price, _)) = best {
                    q4.add((*category, 0), weight * i64::try_from(price).unwrap_or(i64::MAX));
                    q4.add((*category, 1), weight);
                }
            }
        })
    }

    /// The highest bid of each window.
    fn q7(&self, step: &mut Step) -> Result<()> {
        let Step { window_bids, q7, .. } = step;
        greatest((&self.window_bids, &*window_bids), |window, before, after| {
            for (best, weight) in [(before, -1), (after, 1)] {
                if let Some((price, (auction, bidder))) = best {
                    q7.add((*window, price, auction, bidder), weight);
                }
            }
        })
    }

    /// Windows that nothing changes any more give back their state: timers say when. Their results
    /// stay.
    fn close_windows(&self, step: &mut Step, batch: &mut SortedBatch, now: u64) -> Result<()> {
        let due = self.windows.due(now.saturating_sub(TAKEN_BACK_WITHIN * STEP_MS), usize::MAX)?;
        let new: Vec<_> =
            step.window_bids.0.keys().map(|(window, ..)| ((window + 1) * WINDOW_MS, *window)).collect();
        for (_, window) in &due {
            // What this step brought was looked at, and need not come.
            step.window_bids.0.retain(|(of, ..), _| of != window);
            let mut bids = self.window_bids.prefix(&(*window,));
            while bids.next()? {
                step.window_bids.add(bids.key()?, -bids.value()?);
            }
        }
        let mut timers: std::collections::BTreeMap<(u64, u64), bool> =
            new.into_iter().map(|timer| (timer, true)).collect();
        timers.extend(due.into_iter().map(|timer| (timer, false)));
        for ((at, window), is_set) in timers {
            if is_set {
                self.windows.set_sorted(batch, at, &window).wait()?;
            } else {
                self.windows.clear_sorted(batch, at, &window).wait()?;
            }
        }
        Ok(())
    }

    /// Counts by day, and by channel and day: sums, and members that are there at all.
    fn q15_and_q16(&self, step: &mut Step) -> Result<()> {
        let Step { day_members, q15, channel_members, q16, .. } = step;
        distinct((&self.day_members, &*day_members), |(day, kind, _), weight| {
            q15.add((*day, *kind), weight);
        })?;
        distinct((&self.channel_members, &*channel_members), |(channel, day, kind, _), weight| {
            q16.add((channel.clone(), *day, *kind), weight);
        })
    }

    /// All results at one moment, a line each.
    pub fn results(&self) -> Result<Vec<String>> {
        let snapshot = self.db.snapshot();
        let mut lines = Vec::new();
        let mut cursor = self.q3.at(&snapshot).all();
        while cursor.next()? {
            let (name, city, state, auction) = cursor.key()?;
            lines.push(format!("q3: {name} of {city}, {state} sells {auction}"));
        }
        let mut cursor = self.q4.at(&snapshot).all();
        while cursor.next()? {
            let ((category, which), value) = (cursor.key()?, cursor.value()?);
            let what = if which == 0 { "sum" } else { "number" };
            lines.push(format!("q4: category {category}, {what} of winning bids: {value}"));
        }
        let mut cursor = self.q7.at(&snapshot).all();
        while cursor.next()? {
            let (window, price, auction, bidder) = cursor.key()?;
            lines.push(format!("q7: window {window}: {price} by {bidder} for {auction}"));
        }
        let mut cursor = self.q15.at(&snapshot).all();
        while cursor.next()? {
            let ((day, kind), count) = (cursor.key()?, cursor.value()?);
            lines.push(format!("q15: day {day}: {count} {}", COUNTS[usize::from(kind)]));
        }
        let mut cursor = self.q16.at(&snapshot).all();
        while cursor.next()? {
            let ((channel, day, kind), count) = (cursor.key()?, cursor.value()?);
            lines.push(format!("q16: {channel}, day {day}: {count} {}", COUNTS[usize::from(kind)]));
        }
        lines.sort();
        Ok(lines)
    }
}
