//! A bank: transfers between accounts, whose total stays what it was, whatever happens to the
//! process and to whom the database belongs.
//!
//! A process transfers with several threads until it is killed, over and over, or until another
//! process takes the database from it. It says of each transfer when its commit has returned, and
//! adds all accounts up meanwhile, in each way that sees one state.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tombolo::{
    Db, Env, ErrorKind, Isolation, Keyspace, KeyspaceOptions, Locking, Result, Transaction,
    TransactionOptions,
};

/// Where the process of a test finds the database.
const PLACE: &str = "TOMBOLO_BANK";
/// For how many seconds a campaign has it killed.
const SECONDS: &str = "TOMBOLO_BANK_SECONDS";

const ACCOUNTS: u64 = 10;
const EACH: u64 = 1000;
const THREADS: u64 = 3;

fn uri(folder: &std::path::Path) -> String {
    format!("file://{}", folder.join("bank").display())
}

struct Bank {
    db: Db,
    accounts: Keyspace,
    /// What was transferred, by its name.
    transfers: Keyspace,
}

fn open(uri: &str) -> Result<Bank> {
    let options = tombolo::Options::parse(["memory_bytes=4194304", "memtable_bytes=65536"])?;
    let db = Db::builder(uri).options(options).open().wait()?;
    let accounts = db.open_or_create_keyspace("accounts", KeyspaceOptions::default()).wait()?;
    let transfers = db.open_or_create_keyspace("transfers", KeyspaceOptions::default()).wait()?;
    Ok(Bank { db, accounts, transfers })
}

fn number(bytes: Option<&[u8]>) -> u64 {
    bytes.map_or(EACH, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
}

/// All accounts, by cursors, by gets and by one multi-get of a transaction or of a snapshot.
fn total(bank: &Bank, way: u64) -> Result<u64> {
    let keys: Vec<[u8; 1]> = (0..ACCOUNTS).map(|account| [account as u8]).collect();
    let transaction = bank.db.transaction();
    Ok(match way % 4 {
        0 => keys.iter().try_fold(0, |sum, key| {
            Ok::<_, tombolo::Error>(sum + number(transaction.get(&bank.accounts, key).wait()?.as_deref()))
        })?,
        1 => {
            let found = transaction.multi_get(&bank.accounts, &keys).wait()?;
            found.iter().map(|value| number(value.as_deref())).sum()
        }
        2 => {
            let mut cursor = transaction.cursor::<&[u8]>(&bank.accounts, ..);
            let (mut seen, mut sum) = (0, 0);
            while cursor.next()? {
                (seen, sum) = (seen + 1, sum + number(Some(cursor.value())));
            }
            sum + (ACCOUNTS - seen) * EACH
        }
        _ => {
            let found = bank.db.snapshot().multi_get(&bank.accounts, &keys).wait()?;
            found.iter().map(|value| number(value.as_deref())).sum()
        }
    })
}

/// One transfer, noted under its name in the same transaction, which is not committed yet.
fn begin(
    bank: &Bank,
    options: TransactionOptions,
    name: &str,
    (from, to, wanted): (u8, u8, u64),
) -> Result<Transaction> {
    let transaction = bank.db.transaction_with(options);
    // In the order of keys: with locks, two that want the same two would wait for each other.
    let mut balances = BTreeMap::new();
    for account in [from.min(to), from.max(to)] {
        let found = transaction.get_for_update(&bank.accounts, [account]).wait()?;
        balances.insert(account, number(found.as_deref()));
    }
    let amount = wanted.min(balances[&from]);
    *balances.get_mut(&from).unwrap() -= amount;
    *balances.get_mut(&to).unwrap() += amount;
    for (account, balance) in balances {
        transaction.put(&bank.accounts, [account], balance.to_le_bytes()).wait()?;
    }
    transaction.put(&bank.transfers, name, [from, to, amount as u8]).wait()?;
    Ok(transaction)
}

fn transfer(bank: &Bank, name: &str, random: &mut impl FnMut(u64) -> u64) -> Result<()> {
    let locking = [Locking::Optimistic, Locking::Pessimistic][random(2) as usize];
    let isolation = [Isolation::Snapshot, Isolation::Serializable][random(2) as usize];
    let options = TransactionOptions { locking, isolation, ..Default::default() };
    let parts = (random(ACCOUNTS) as u8, random(ACCOUNTS) as u8, random(20));
    begin(bank, options, name, parts)?.commit().wait().map(drop)
}

/// Whether somebody else has the database by now.
fn is_over(error: &tombolo::Error) -> bool {
    matches!(error.kind(), ErrorKind::Fenced | ErrorKind::OutcomeUnknown | ErrorKind::Closed)
}

/// What the tests below start and kill: not a test of its own.
#[test]
fn a_process_that_transfers_until_it_is_killed() {
    let Ok(place) = std::env::var(PLACE) else { return };
    let (place, life) = place.split_once(' ').unwrap();
    let bank = open(place).unwrap();
    let seed = Env::real().random_u64();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let bank = &bank;
            scope.spawn(move || {
                let mut state = seed ^ thread;
                let mut random = |bound: u64| {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 33) % bound
                };
                for round in 0_u64.. {
                    let name = format!("{life} {thread} {round}");
                    match transfer(bank, &name, &mut random) {
                        Ok(()) => tell(&format!("did {name}")),
                        Err(error) if is_over(&error) => return,
                        Err(error) if error.kind() == ErrorKind::Conflict => {}
                        Err(error) => panic!("{name}: {error}"),
                    }
                    if round % 8 == 0 {
                        match total(bank, round / 8) {
                            Ok(sum) => assert_eq!(sum, ACCOUNTS * EACH, "{name}"),
                            Err(error) if is_over(&error) => return,
                            Err(error) => panic!("{name}: {error}"),
                        }
                    }
                    if round % 50 == 17 && bank.db.flush().wait().is_err() {
                        return;
                    }
                }
            });
        }
    });
    tell("over");
}

/// One line; a whole one, as pipes keep short writes together.
fn tell(line: &str) {
    // Nobody needs what nobody reads: the one who began it is gone.
    if std::io::stdout().write_all(format!("\nbank: {line}\n").as_bytes()).is_err() {
        std::process::exit(1);
    }
}

fn start(place: &str, life: u64) -> (Child, impl Iterator<Item = String>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["bank::a_process_that_transfers_until_it_is_killed", "--exact", "--nocapture"])
        .env(PLACE, format!("{place} {life}"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(std::io::Result::ok);
    (child, lines.filter_map(|line| line.strip_prefix("bank: ").map(str::to_owned)))
}

/// A life leaves behind: the total, each transfer that was said to be done, and balances that
/// are what all noted transfers make of them.
fn is_whole(bank: &Bank, did: &[String]) {
    for way in 0..4 {
        assert_eq!(total(bank, way).unwrap(), ACCOUNTS * EACH);
    }
    for name in did {
        assert!(bank.transfers.get(name).wait().unwrap().is_some(), "{name} is lost");
    }
    // Names are in no order of time: on the way an account may lack something.
    let mut balances = [EACH.cast_signed(); ACCOUNTS as usize];
    for noted in bank.transfers.scan::<&[u8]>(..) {
        let (_, noted) = noted.unwrap();
        balances[noted[0] as usize] -= i64::from(noted[2]);
        balances[noted[1] as usize] += i64::from(noted[2]);
    }
    for (account, balance) in balances.iter().enumerate() {
        let found = bank.accounts.get([account as u8]).wait().unwrap();
        assert_eq!(number(found.as_deref()).cast_signed(), *balance, "account {account}");
    }
}

/// Lives of processes, each of which is killed after some transfers, or loses the database.
#[test]
fn totals_stay_through_kills_and_takeovers() {
    let folder = tempfile::tempdir().unwrap();
    let place = uri(folder.path());
    let env = Env::real();
    let seconds: Option<u64> = std::env::var(SECONDS).ok().map(|text| text.parse().unwrap());
    let end = env.now() + Duration::from_secs(seconds.unwrap_or(0));
    let mut did: Vec<String> = Vec::new();
    let mut life = 0;
    while life < 4 || (seconds.is_some() && env.now() < end) {
        life += 1;
        let (mut child, mut said) = start(&place, life);
        let wanted = 20 + env.random_u64() % 60;
        let heard = said.by_ref().take(wanted as usize);
        did.extend(heard.filter_map(|line| line.strip_prefix("did ").map(str::to_owned)));
        if life % 2 == 0 {
            child.kill().unwrap();
        }
        // The other half of lives end here: this process takes the database from a live one.
        let bank = open(&place).unwrap();
        did.extend(said.filter_map(|line| line.strip_prefix("did ").map(str::to_owned)));
        assert_eq!(child.wait().unwrap().success(), life % 2 == 1, "life {life}");
        is_whole(&bank, &did);
        bank.db.close().wait().unwrap();
        // What was found once is in the balances: a campaign need not ask for all of it each time.
        if did.len() > 5000 {
            did.clear();
        }
    }
    println!("totals stayed through {life} lives");
}

fn two_that_meet() {
    // A place of its own: the test that takes a rule out may run beside.
    let bank = open(&format!("mem://bank-{}", Env::real().random_u64())).unwrap();
    let begin = |name, parts| begin(&bank, TransactionOptions::default(), name, parts).unwrap();
    let (first, second) = (begin("first", (0, 1, 5)), begin("second", (0, 2, 7)));
    first.commit().wait().unwrap();
    let late = second.commit().wait();
    is_whole(&bank, &["first".to_owned()]);
    assert_eq!(late.unwrap_err().kind(), ErrorKind::Conflict);
}

#[test]
fn of_two_transfers_that_meet_one_counts() {
    two_that_meet();
}

#[cfg(feature = "mutants")]
#[test]
fn a_bank_shows_what_is_taken_out() {
    tombolo_storage::mutant::notices(tombolo_storage::mutant::Mutant::TransactionUnchecked, two_that_meet);
}
