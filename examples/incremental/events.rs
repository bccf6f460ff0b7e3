//! Events of an auction house, made from a seed: after the Nexmark benchmark, in small.
//!
//! Each event follows from the seed and its number alone, so that a process goes on from any
//! number. A bid may be taken back a little later, so that results go back as well.

/// Time between two events.
pub const STEP_MS: u64 = 100;
/// A bid is taken back within so many events, or never.
pub const TAKEN_BACK_WITHIN: u64 = 20;

const CITIES: [(&str, &str); 6] = [
    ("Portland", "OR"),
    ("Boise", "ID"),
    ("Oakland", "CA"),
    ("Seattle", "WA"),
    ("Reno", "NV"),
    ("Fresno", "CA"),
];
const CHANNELS: [&str; 4] = ["web", "phone", "post", "floor"];

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Person {
    pub id: u64,
    pub name: String,
    pub city: &'static str,
    pub state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Auction {
    pub id: u64,
    pub seller: u64,
    pub category: u64,
    pub opens: u64,
    pub closes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bid {
    /// The number of its event.
    pub id: u64,
    pub auction: u64,
    pub bidder: u64,
    pub price: u64,
    pub at: u64,
    pub channel: &'static str,
}

/// What comes, or with a weight of -1 goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Person(Person),
    Auction(Auction),
    Bid(Bid, i64),
}

/// A number of `what` of event `number`, below `bound`.
fn draw(seed: u64, number: u64, what: u64, bound: u64) -> u64 {
    let mut mixed =
        seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ what.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) % bound
}

/// Of fifty events one is a person, three are auctions; the ids of those before `number`.
fn people(number: u64) -> u64 {
    number / 50 + 1
}

fn auctions(number: u64) -> u64 {
    number / 50 * 3 + (number % 50).clamp(1, 3)
}

fn is_bid(number: u64) -> bool {
    number % 50 >= 5
}

fn bid(seed: u64, number: u64) -> Bid {
    // Recent auctions get most bids.
    let recent = auctions(number).min(12);
    let auction = auctions(number) - 1 - draw(seed, number, 1, recent);
    Bid {
        id: number,
        auction,
        bidder: draw(seed, number, 2, people(number)),
        price: 1 + draw(seed, number, 3, 10_u64.pow(2 + u32::try_from(number % 6).unwrap_or(0))),
        at: number * STEP_MS,
        channel: CHANNELS[usize::try_from(draw(seed, number, 4, 4)).unwrap_or(0)],
    }
}

/// Event `number`.
pub fn event(seed: u64, number: u64) -> Event {
    match number % 50 {
        0 => {
            let (city, state) = CITIES[usize::try_from(draw(seed, number, 5, 6)).unwrap_or(0)];
            let id = number / 50;
            Event::Person(Person { id, name: format!("person {id}"), city, state })
        }
        place @ 1..=3 => Event::Auction(Auction {
            id: number / 50 * 3 + place - 1,
            seller: draw(seed, number, 6, people(number)),
            category: 8 + draw(seed, number, 7, 5),
            opens: number * STEP_MS,
            closes: number * STEP_MS + 1_000 + draw(seed, number, 8, 20_000),
        }),
        4 => {
            // A bid of before is taken back, if it was one.
            let before = number.checked_sub(1 + draw(seed, number, 9, TAKEN_BACK_WITHIN));
            match before.filter(|before| is_bid(*before)) {
                Some(before) => Event::Bid(bid(seed, before), -1),
                None => Event::Person(Person {
                    id: u64::MAX - number,
                    name: "a guest".to_owned(),
                    city: "Reno",
                    state: "NV",
                }),
            }
        }
        _ => Event::Bid(bid(seed, number), 1),
    }
}
