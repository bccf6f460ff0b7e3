//! A small model of the commit section, searched to its end: one key, two writers with conditions,
//! one without, seals, flushes and compactions at any moment. Each rule, taken out, gives a history
//! in which a condition is said to hold that does not, or the other way round.

use std::collections::HashSet;

/// A write: its number, and whether the key has a value by it.
type Entry = (u8, bool);

/// A rule of `write::conditions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// Versions newer than the snapshot are looked for in the commit section.
    ChecksInSection,
    /// Nobody commits between the check and the commit.
    ChecksAlone,
    /// Tables that are newer than the snapshot are asked.
    AsksNewerTables,
    /// What memory does not know is not taken for nothing.
    ReadsAgain,
    /// The snapshot is registered, so that deletes that are newer than it stay.
    RegistersSnapshot,
    /// The view is loaded after the snapshot was taken.
    LoadsViewLast,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Table {
    /// Newest first.
    entries: Vec<Entry>,
    in_memory: bool,
}

impl Table {
    fn last(&self) -> u8 {
        self.entries.first().map_or(0, |entry| entry.0)
    }
}

/// What a read sees: memtables by number, newest first, and tables.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct View {
    memtables: Vec<usize>,
    tables: Vec<Table>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    Begins,
    /// It has loaded a view before it took a snapshot.
    Viewed(View),
    /// Its snapshot is taken.
    Registered(u8),
    /// It has found this at its snapshot.
    Looked(u8, Option<Entry>),
    /// Its check has said this, and it has not committed.
    Checked(bool),
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Writer {
    /// Whether it asks for a value, or for none.
    wants_value: bool,
    /// Whether what it writes is a value, or a delete.
    writes_value: bool,
    step: Step,
    reads_left: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    last: u8,
    /// The newest write of all.
    truth: Option<Entry>,
    /// Entries newest first; the last memtable is the active one.
    memtables: Vec<Vec<Entry>>,
    /// Numbers of those that wait for their flush, newest first.
    waiting: Vec<usize>,
    /// Newest first.
    tables: Vec<Table>,
    writers: [Writer; 2],
    /// What the writer without conditions has still to write, the last first.
    plain: Vec<bool>,
    seals_left: u8,
}

impl State {
    fn view(&self) -> View {
        let mut memtables = vec![self.memtables.len() - 1];
        memtables.extend(&self.waiting);
        View { memtables, tables: self.tables.clone() }
    }

    /// The newest entry that a read at `sequence` finds in a view.
    fn read(&self, view: &View, sequence: u8) -> Option<Entry> {
        let memtables = view.memtables.iter().map(|number| &self.memtables[*number]);
        let mut runs = memtables.chain(view.tables.iter().map(|table| &table.entries));
        runs.find_map(|run| run.iter().find(|entry| entry.0 <= sequence)).copied()
    }

    fn write(&mut self, is_value: bool) {
        self.last += 1;
        self.truth = Some((self.last, is_value));
        let entry = (self.last, is_value);
        self.memtables.last_mut().unwrap().insert(0, entry);
    }

    fn snapshots(&self) -> Vec<u8> {
        let mut all: Vec<u8> = self
            .writers
            .iter()
            .filter_map(|writer| match writer.step {
                Step::Registered(at) | Step::Looked(at, _) => Some(at),
                _ => None,
            })
            .collect();
        all.sort_unstable();
        all
    }

    /// Merges all tables: of each stripe the newest stays, and a delete that all see goes.
    fn compact(&mut self, registered: bool) {
        let snapshots = if registered { self.snapshots() } else { Vec::new() };
        let (mut kept, mut before) = (Vec::new(), None);
        for entry in self.tables.iter().flat_map(|table| &table.entries) {
            let stripe = snapshots.partition_point(|snapshot| *snapshot < entry.0);
            if before.replace(stripe) != Some(stripe) && (entry.1 || stripe > 0) {
                kept.push(*entry);
            }
        }
        self.tables.clear();
        if !kept.is_empty() {
            self.tables.push(Table { entries: kept, in_memory: false });
        }
    }

    /// What the commit section finds newer than `seen`; `Err` when memory does not know.
    fn newer(&self, seen: u8, broken: Option<Rule>) -> Result<Option<Entry>, ()> {
        let view = self.view();
        let newest = view.memtables.iter().find_map(|number| self.memtables[*number].first());
        if let Some(entry) = newest.filter(|entry| entry.0 > seen) {
            return Ok(Some(*entry));
        }
        for table in &view.tables {
            if table.last() <= seen || broken == Some(Rule::AsksNewerTables) {
                continue;
            }
            if !table.in_memory {
                if broken == Some(Rule::ReadsAgain) {
                    continue;
                }
                return Err(());
            }
            return Ok(table.entries.first().copied());
        }
        Ok(None)
    }
}

/// All that may happen next, or the wrong answer that one of it gives.
fn successors(state: &State, broken: Option<Rule>) -> Result<Vec<State>, String> {
    let mut next = Vec::new();
    if let Some(is_value) = state.plain.last() {
        let mut then = state.clone();
        then.plain.pop();
        then.write(*is_value);
        next.push(then);
    }
    if state.seals_left > 0 {
        let mut then = state.clone();
        then.seals_left -= 1;
        then.waiting.insert(0, then.memtables.len() - 1);
        then.memtables.push(Vec::new());
        next.push(then);
    }
    if let Some(oldest) = state.waiting.last() {
        let mut then = state.clone();
        then.waiting.pop();
        let entries = state.memtables[*oldest].clone();
        if !entries.is_empty() {
            then.tables.insert(0, Table { entries, in_memory: false });
        }
        next.push(then);
    }
    if !state.tables.is_empty() {
        let mut then = state.clone();
        then.compact(broken != Some(Rule::RegistersSnapshot));
        next.push(then);
        let mut then = state.clone();
        then.tables.iter_mut().for_each(|table| table.in_memory = true);
        next.push(then);
    }
    for number in 0..state.writers.len() {
        let mut then = state.clone();
        let writer = &state.writers[number];
        let step = match &writer.step {
            Step::Done => continue,
            Step::Begins if broken == Some(Rule::LoadsViewLast) => Step::Viewed(state.view()),
            Step::Begins => Step::Registered(state.last),
            Step::Viewed(view) => Step::Looked(state.last, state.read(view, state.last)),
            Step::Registered(at) => Step::Looked(*at, state.read(&state.view(), *at)),
            Step::Looked(at, found) => {
                let newer = match broken {
                    Some(Rule::ChecksInSection) => Ok(None),
                    _ => state.newer(*at, broken),
                };
                match newer {
                    Err(()) => {
                        then.writers[number].reads_left -= 1;
                        // It ends with a conflict, and has said nothing of its condition.
                        if writer.reads_left == 1 { Step::Done } else { Step::Begins }
                    }
                    Ok(newer) => {
                        let has_value = newer.or(*found).is_some_and(|entry| entry.1);
                        let holds = has_value == writer.wants_value;
                        if broken == Some(Rule::ChecksAlone) {
                            Step::Checked(holds)
                        } else {
                            commit(&mut then, number, holds)?;
                            Step::Done
                        }
                    }
                }
            }
            Step::Checked(holds) => {
                commit(&mut then, number, *holds)?;
                Step::Done
            }
        };
        then.writers[number].step = step;
        next.push(then);
    }
    Ok(next)
}

/// A writer says whether its condition holds, and writes if it does.
fn commit(state: &mut State, number: usize, holds: bool) -> Result<(), String> {
    let writer = &state.writers[number];
    let (wants_value, writes_value) = (writer.wants_value, writer.writes_value);
    let is_value = state.truth.is_some_and(|entry| entry.1);
    if holds != (is_value == wants_value) {
        return Err(format!("writer {number} said {holds} of {state:#?}"));
    }
    if holds {
        state.write(writes_value);
    }
    Ok(())
}

/// Visits every state that can come of `first`; how many there are.
fn search(first: State, broken: Option<Rule>) -> Result<usize, String> {
    let mut seen = HashSet::from([first.clone()]);
    let mut open = vec![first];
    while let Some(state) = open.pop() {
        for next in successors(&state, broken)? {
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    Ok(seen.len())
}

/// The beginnings: the two writers' conditions, and the key's state.
fn beginnings() -> Vec<State> {
    let writer =
        |wants_value, writes_value| Writer { wants_value, writes_value, step: Step::Begins, reads_left: 2 };
    let pairs = [
        [writer(false, true), writer(false, true)],
        [writer(true, false), writer(false, true)],
        [writer(true, true), writer(true, false)],
    ];
    let mut all = Vec::new();
    for writers in pairs {
        for plain in [vec![false], vec![true], vec![true, false]] {
            let entries = vec![(1, true)];
            let with_value = State {
                last: 1,
                truth: Some((1, true)),
                memtables: vec![Vec::new()],
                waiting: Vec::new(),
                tables: vec![Table { entries, in_memory: true }],
                writers: writers.clone(),
                plain,
                seals_left: 1,
            };
            let empty = State { last: 0, truth: None, tables: Vec::new(), ..with_value.clone() };
            all.extend([with_value, empty]);
        }
    }
    all
}

fn search_all(broken: Option<Rule>) -> Result<usize, String> {
    beginnings().into_iter().try_fold(0, |states, first| Ok(states + search(first, broken)?))
}

#[test]
fn no_history_says_of_a_condition_what_is_not_so() {
    let states = search_all(None).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(states > 1_000, "{states} states: the model does too little");
}

#[test]
fn each_rule_taken_out_gives_a_history_that_goes_wrong() {
    for rule in [
        Rule::ChecksInSection,
        Rule::ChecksAlone,
        Rule::AsksNewerTables,
        Rule::ReadsAgain,
        Rule::RegistersSnapshot,
        Rule::LoadsViewLast,
    ] {
        assert!(search_all(Some(rule)).is_err(), "without {rule:?} nothing goes wrong");
    }
}
