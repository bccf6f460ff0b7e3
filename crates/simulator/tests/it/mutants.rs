//! Each rule taken out is noticed by a scenario.

use tombolo_simulator::mutants;

#[test]
fn each_rule_taken_out_is_noticed() {
    let survived: Vec<_> = mutants::ALL.iter().filter(|hunt| hunt.run().is_none()).collect();
    assert!(survived.is_empty(), "survived: {survived:?}");
}
