//! Generated sequences against the model alone: it keeps its own invariants and agrees with itself, and the generator
//! reaches every method and every kind of error.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use serde_json::json;

use super::adopt::as_answer;
use super::assumptions::Figures;
use super::{Assumptions, Coverage, Model, Step, sequence};

/// Runs one sequence on two models; the second follows the first one's answers as if they were a server's.
fn run(steps: &[Step], coverage: &mut Coverage) -> Result<(), String> {
    run_against(Model { picks_last: true, generation_gap: 9, ..Model::new() }, steps, coverage)
}

fn run_against(mut server: Model, steps: &[Step], coverage: &mut Coverage) -> Result<(), String> {
    let mut model = Model::new();
    let mut now = 1_700_000_000_000;
    for step in steps {
        now += step.advance_ms;
        let params = model.resolve(now, &step.params);
        let answer = as_answer(server.call(now, step.method, &params));
        // A server gives one overlap, where the model lists the possible ones.
        let answer = answer.map_err(|(kind, mut data)| {
            data["with"] = data["with_any"][0].clone();
            (kind, data)
        });
        coverage.record(step.method, &answer);
        model.call_with_answer(now, step.method, &params, &answer)?;
        server.check_invariants().map_err(|problem| format!("{} {params}: {problem}", step.method))?;
    }
    Ok(())
}

fn sequences(count: usize, len: usize) -> impl Iterator<Item = Vec<Step>> {
    let mut runner = TestRunner::deterministic();
    std::iter::repeat_with(move || sequence(len).new_tree(&mut runner).expect("a sequence").current()).take(count)
}

#[test]
fn model_agrees_with_itself_and_the_generator_reaches_everything() {
    let mut coverage = Coverage::default();
    for steps in sequences(200, 120) {
        if let Err(problem) = run(&steps, &mut coverage) {
            panic!("{problem}");
        }
    }
    println!("{}", coverage.table());
    assert_eq!(coverage.missing(), Vec::<String>::new());
}

#[test]
fn at_least_a_third_of_generated_requests_succeed() {
    let mut coverage = Coverage::default();
    for steps in sequences(50, 120) {
        let _ = run(&steps, &mut coverage);
    }
    let granted = coverage.count("ip.allocate", "ok");
    let short = coverage.count("ip.allocate", "not_enough_capacity");
    assert!(granted * 3 > short, "{granted} granted, {short} refused for want of capacity");
    assert!(coverage.count("ip.acquire", "ok") > 20 && coverage.count("ip.transfer", "ok") > 10);
}

#[test]
fn each_decision_that_a_server_makes_otherwise_is_noticed() {
    type Otherwise = fn(&mut Assumptions);
    let decisions: [(&str, Otherwise); 6] = [
        ("cools_from_lease_end", |assume| assume.cools_from_lease_end = true),
        ("removal_forgets", |assume| assume.removal_forgets = true),
        ("no_change_raises_version", |assume| assume.no_change_raises_version = true),
        ("uid_binds_on_repeat", |assume| assume.uid_binds_on_repeat = false),
        ("declined_needs_force", |assume| assume.declined_needs_force = false),
        ("figures", |assume| assume.figures = Figures::WholeNetwork),
    ];
    for (name, decide) in decisions {
        let mut server = Model::new();
        decide(&mut server.assume);
        let noticed =
            sequences(400, 120).any(|steps| run_against(server.clone(), &steps, &mut Coverage::default()).is_err());
        assert!(noticed, "nothing tells whether {name}");
    }
}

#[test]
fn comparison_notices_a_wrong_address_a_wrong_kind_and_a_repeated_generation() {
    let network = json!({ "name": "n", "subnets": [{ "cidr": "10.0.0.0/28" }] });
    let mut model = Model::new();
    let mut server = Model::new();
    let created = as_answer(server.call(1, "network.create", &network));
    model.call_with_answer(1, "network.create", &network, &created).expect("equal");
    let wish = json!({ "network": "n", "owner": "a" });
    let mut wrong = as_answer(server.call(2, "ip.allocate", &wish)).expect("granted");
    assert!(model.clone().call_with_answer(2, "ip.allocate", &wish, &Ok(wrong.clone())).is_ok());
    let refusal = ("not_found".to_string(), json!({}));
    assert!(model.clone().call_with_answer(2, "ip.allocate", &wish, &Err(refusal)).is_err());
    wrong["generation"] = json!(0);
    assert!(model.clone().call_with_answer(2, "ip.allocate", &wish, &Ok(wrong.clone())).is_err());
    wrong["generation"] = json!(1);
    wrong["address"] = json!("10.0.0.2");
    assert!(model.call_with_answer(2, "ip.allocate", &wish, &Ok(wrong)).is_err());
}
