//! The same queries over all events at once, in plain memory: what the incremental ones must give.

use std::collections::{BTreeMap, BTreeSet};

use crate::events::{Auction, Bid, Event, Person, event};
use crate::queries::{CATEGORY, COUNTS, DAY_MS, STATES, WINDOW_MS, rank};

/// The results, a line each.
pub fn results(seed: u64, events: u64) -> Vec<String> {
    let (mut people, mut auctions, mut bids) = (Vec::new(), Vec::new(), BTreeMap::new());
    for number in 0..events {
        match event(seed, number) {
            Event::Person(person) => people.push(person),
            Event::Auction(auction) => auctions.push(auction),
            Event::Bid(bid, weight) => *bids.entry(bid).or_insert(0_i64) += weight,
        }
    }
    let bids: Vec<Bid> = bids.into_iter().filter(|(_, weight)| *weight > 0).map(|(bid, _)| bid).collect();
    let mut lines = q3(&people, &auctions);
    lines.extend(q4(&auctions, &bids));
    lines.extend(q7(&bids));
    lines.extend(counts(&bids, |bid| format!("q15: day {}", bid.at / DAY_MS)));
    lines.extend(counts(&bids, |bid| format!("q16: {}, day {}", bid.channel, bid.at / DAY_MS)));
    lines.sort();
    lines
}

fn q3(people: &[Person], auctions: &[Auction]) -> Vec<String> {
    let sold = auctions.iter().filter(|auction| auction.category == CATEGORY);
    let pairs = sold.flat_map(|auction| {
        people.iter().filter(move |person| person.id == auction.seller).map(move |person| (person, auction))
    });
    let wanted = pairs.filter(|(person, _)| STATES.contains(&person.state));
    wanted
        .map(|(person, auction)| {
            format!("q3: {} of {}, {} sells {}", person.name, person.city, person.state, auction.id)
        })
        .collect()
}

fn q4(auctions: &[Auction], bids: &[Bid]) -> Vec<String> {
    let mut categories: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for auction in auctions {
        let valid = bids
            .iter()
            .filter(|bid| bid.auction == auction.id && (auction.opens..auction.closes).contains(&bid.at));
        if let Some(price) = valid.map(|bid| bid.price).max() {
            let (sum, number) = categories.entry(auction.category).or_default();
            *sum += price;
            *number += 1;
        }
    }
    let lines = categories.iter().flat_map(|(category, (sum, number))| {
        [("sum", sum), ("number", number)]
            .map(|(what, value)| format!("q4: category {category}, {what} of winning bids: {value}"))
    });
    lines.collect()
}

fn q7(bids: &[Bid]) -> Vec<String> {
    let mut windows: BTreeMap<u64, &Bid> = BTreeMap::new();
    // Of equal prices the least auction and bidder.
    let order = |bid: &Bid| (bid.price, std::cmp::Reverse((bid.auction, bid.bidder)));
    for bid in bids {
        let best = windows.entry(bid.at / WINDOW_MS).or_insert(bid);
        if order(bid) > order(best) {
            *best = bid;
        }
    }
    let lines = windows.iter().map(|(window, bid)| {
        format!("q7: window {window}: {} by {} for {}", bid.price, bid.bidder, bid.auction)
    });
    lines.collect()
}

fn counts(bids: &[Bid], group: impl Fn(&Bid) -> String) -> Vec<String> {
    let mut groups: BTreeMap<String, Vec<&Bid>> = BTreeMap::new();
    bids.iter().for_each(|bid| groups.entry(group(bid)).or_default().push(bid));
    let mut lines = Vec::new();
    for (group, bids) in groups {
        let ranked = |wanted| bids.iter().filter(|bid| rank(bid.price) == wanted).count();
        let bidders: BTreeSet<_> = bids.iter().map(|bid| bid.bidder).collect();
        let auctions: BTreeSet<_> = bids.iter().map(|bid| bid.auction).collect();
        let all = [bids.len(), ranked(1), ranked(2), ranked(3), bidders.len(), auctions.len()];
        let there = all.iter().zip(COUNTS).filter(|(count, _)| **count > 0);
        lines.extend(there.map(|(count, what)| format!("{group}: {count} {what}")));
    }
    lines
}
