//! Checks the options of a run together: an option that the scenario ignores is refused by its name, and so are values that
//! cannot work.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};

use crate::advice::Advice;
use crate::arguments::RunArguments;
use crate::arrivals::Spread;
use crate::driver::{Shape, Stop};
use crate::report::document::check_place;
use crate::scenario::{Name, NetworkPlan, Settings};
use crate::target::Store;

/// Options of all scenarios whose networks can be chosen freely.
const NETWORKS: &[&str] = &["--networks", "--cidr", "--policy", "--cooldown"];
/// How long after the end of its wait a request may still be answered.
const BEHIND_WAIT_SECONDS: u64 = 5;
/// The network that blocks are taken from by default.
const CIDR_OF_BLOCKS: &str = "10.0.0.0/8";

/// The options that a scenario heeds, among those that not every scenario does.
fn heeded(scenario: Name) -> Vec<&'static str> {
    let (networks, more): (&[&str], &[&str]) = match scenario {
        Name::Mixed | Name::HotNetwork => (NETWORKS, &["--fill-level", "--prefill", "--hold", "--brief"]),
        Name::Churn | Name::ManyNetworks => {
            (NETWORKS, &["--keep-network", "--fill-level", "--prefill", "--hold", "--brief"])
        }
        Name::Contended => (NETWORKS, &["--keep-network", "--fill-level", "--prefill", "--hold", "--brief", "--wait"]),
        Name::Fill | Name::Ipv6 => (NETWORKS, &["--keep-network", "--prefill", "--hold", "--brief"]),
        Name::Blocks => (NETWORKS, &["--prefill", "--hold", "--brief", "--prefix-length"]),
        Name::Claims => (&[], &["--policy", "--cooldown", "--brief"]),
        Name::ClaimAndSweep => (&[], &["--policy", "--cooldown"]),
        Name::Deployments => (NETWORKS, &["--instances"]),
        Name::RestartStorm => (NETWORKS, &["--owners", "--brief"]),
    };
    networks.iter().chain(more).copied().collect()
}

fn refused(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

impl RunArguments {
    /// Refuses options that have no effect on this scenario, and values that cannot work.
    ///
    /// # Errors
    /// There is such an option.
    pub fn check(&self, scenario: Name) -> io::Result<()> {
        let heeded = heeded(scenario);
        let name = scenario.text();
        if let Some(option) = self.given().into_iter().find(|option| !heeded.contains(option)) {
            let those = heeded.join(", ");
            return Err(refused(format!("{option} has no effect on `{name}`, which heeds {those}")));
        }
        let of_networks = [
            ("--cidr", self.cidr.is_some()),
            ("--policy", self.policy.is_some()),
            ("--cooldown", self.cooldown.is_some()),
        ];
        if let Some((option, _)) = of_networks.into_iter().find(|(_, is_given)| *is_given && self.no_create) {
            return Err(refused(format!("{option} is of networks that are made, and --no-create makes none")));
        }
        if self.no_create && self.is_several() {
            let text = "--no-create with several levels of --fill-level: each level begins with networks of its own, and those \
                        that are there are not emptied. Take one level at a time, or leave --no-create out";
            return Err(refused(text.to_owned()));
        }
        if scenario == Name::Ipv6
            && let Some(cidr) = self.cidr.as_deref().filter(|cidr| !cidr.contains(':'))
        {
            return Err(refused(format!("--cidr {cidr}: `{name}` takes a prefix of IPv6")));
        }
        if self.kill && self.target.start == Some(Store::Memory) {
            return Err(refused("--kill with --start memory: what was held would be lost with the server".to_owned()));
        }
        if scenario == Name::RestartStorm && self.shape.warmup > 0.0 {
            let text = "--warmup: every owner of a `restart-storm` asks once, so what it warms up with is not there to be measured";
            return Err(refused(text.to_owned()));
        }
        if let Some(level) = self.fill_level.iter().find(|level| !(0.0..=1.0).contains(*level)) {
            return Err(refused(format!("--fill-level {level}: it is a share, from 0 to 1")));
        }
        if let Some(length) = self.prefix_length {
            let cidr = self.cidr.as_deref().unwrap_or(CIDR_OF_BLOCKS);
            let most = if cidr.contains(':') { 128 } else { 32 };
            let of_network = cidr.split_once('/').and_then(|(_, length)| length.parse::<u8>().ok()).unwrap_or(0);
            if length <= of_network || length > most {
                let least = of_network + 1;
                return Err(refused(format!("--prefix-length {length}: blocks of {cidr} have {least} to {most}")));
            }
        }
        [&self.save, &self.page].into_iter().flatten().try_for_each(|path| check_place(path))
    }

    /// What is advised where the networks of this run cannot be used.
    pub fn advice(&self, scenario: Name) -> Advice {
        let is_other = if self.is_several() {
            ", and --network-prefix makes others"
        } else {
            ", `--no-create` takes it as it is, and --network-prefix makes others"
        };
        let too_many = match (scenario, self.prefill) {
            (Name::RestartStorm, _) => ": take fewer --owners",
            (_, Some(_)) => ": take a lower --prefill",
            (_, None) if self.no_create => ": take a lower --fill-level, or --prefill with a number",
            (_, None) => ": take a smaller --cidr, a lower --fill-level, or --prefill with a number",
        };
        Advice {
            in_use: ", or give this run networks of its own by --network-prefix",
            is_other,
            is_there: ", for each of several levels of --fill-level begins with empty ones. Take one level, or other networks by \
                       --network-prefix",
            shared: "; --network-prefix gives a run networks of its own",
            too_many,
        }
    }

    /// Does the run have several fill levels, each of which begins with new networks?
    pub fn is_several(&self) -> bool {
        self.fill_level.len() > 1
    }

    /// Are the networks that the run made removed at the end of each level?
    pub fn deletes(&self) -> bool {
        !self.no_create && (self.delete || self.is_several())
    }

    /// How long the server may be silent before requests count as lost. If requests wait for capacity, a correct server may
    /// be silent for as long as they wait.
    pub fn patience(&self) -> Duration {
        let waits = self.wait.map_or(0, |seconds| seconds.saturating_add(BEHIND_WAIT_SECONDS));
        Duration::from_secs(self.shape.patience.max(waits))
    }

    /// The options that were given, among those that not every scenario heeds.
    fn given(&self) -> Vec<&'static str> {
        [
            ("--networks", self.networks.is_some()),
            ("--keep-network", self.keep_network),
            ("--cidr", self.cidr.is_some()),
            ("--policy", self.policy.is_some()),
            ("--cooldown", self.cooldown.is_some()),
            ("--fill-level", !self.fill_level.is_empty()),
            ("--prefill", self.prefill.is_some()),
            ("--hold", self.hold.is_some()),
            ("--owners", self.owners.is_some()),
            ("--instances", self.instances.is_some()),
            ("--prefix-length", self.prefix_length.is_some()),
            ("--wait", self.wait.is_some()),
            ("--brief", self.shape.brief),
        ]
        .into_iter()
        .filter_map(|(option, is_given)| is_given.then_some(option))
        .collect()
    }
}

/// The settings of a run, for its report. Null stands for the default of the scenario, or for a network that was there
/// already. `network` is the first network that the run makes.
pub fn told(settings: &Settings, shape: &Shape, network: Option<&NetworkPlan>) -> Value {
    let (requests, seconds) = match shape.stop {
        Stop::Requests(count) => (Some(count), None),
        Stop::After(time) => (None, Some(time.as_secs_f64())),
    };
    let arrivals = shape.rate.map(|rate| match rate.spread {
        Spread::Poisson => "poisson",
        Spread::Even => "even",
    });
    json!({
        "seed": settings.seed,
        "requests": requests,
        "seconds": seconds,
        "warmup_seconds": shape.warmup.as_secs_f64(),
        "arrivals": arrivals,
        "patience_seconds": shape.patience.as_secs_f64(),
        "brief": settings.brief,
        "network_prefix": settings.network_prefix,
        "keep_network": settings.lanes_per_network.is_some(),
        "cidr": network.map(|network| &network.cidr),
        "policy": network.map(|network| &network.policy),
        "cooldown_seconds": network.map(|network| network.cooldown_seconds),
        "prefill": settings.prefill,
        "fill_level": settings.fill_level,
        "hold": settings.hold,
        "owners": settings.owners,
        "instances": settings.instances,
        "prefix_length": settings.prefix_length,
        "wait_seconds": settings.wait_seconds,
    })
}

#[cfg(test)]
mod tests {
    use clap::{Parser, ValueEnum};

    use super::*;
    use crate::arguments::{Arguments, Command};

    /// The refusal of this command line, if it is refused.
    fn said(words: &str) -> Option<String> {
        let Command::Run(run) = Arguments::parse_from(format!("allod-load run {words}").split(' ')).command else {
            panic!("{words}")
        };
        run.arguments.check(run.scenario).err().map(|error| error.to_string())
    }

    #[test]
    fn each_scenario_refuses_by_name_what_it_does_not_heed() {
        let options = [
            ("--networks", "2"),
            ("--cidr", "2001:db8::/64"),
            ("--policy", "lowest"),
            ("--cooldown", "1"),
            ("--fill-level", "0.5"),
            ("--prefill", "10"),
            ("--hold", "2"),
            ("--owners", "10"),
            ("--instances", "2"),
            ("--prefix-length", "28"),
            ("--wait", "1"),
        ];
        for scenario in Name::value_variants() {
            let heeded = heeded(*scenario);
            for (option, value) in options {
                let said = said(&format!("{} {option} {value}", scenario.text()));
                match said {
                    None => assert!(heeded.contains(&option), "{scenario:?} {option}"),
                    Some(said) => assert!(said.contains(option) && !heeded.contains(&option), "{scenario:?}: {said}"),
                }
            }
        }
        assert!(said("deployments --brief").is_some() && said("fill --brief").is_none());
        assert!(said("mixed --keep-network").is_some() && said("churn --keep-network").is_none());
    }

    fn run(words: &str) -> RunArguments {
        match Arguments::parse_from(format!("allod-load run {words}").split(' ')).command {
            Command::Run(run) => run.arguments,
            _ => panic!("{words}"),
        }
    }

    #[test]
    fn networks_are_deleted_only_by_a_run_that_makes_them() {
        for (words, deletes) in [
            ("churn --fill-level 0.1,0.9", true),
            ("churn --delete", true),
            ("churn", false),
            ("churn --no-create --fill-level 0.9", false),
            ("churn --no-create --fill-level 0.1,0.9", false),
        ] {
            assert_eq!(run(words).deletes(), deletes, "{words}");
        }
    }

    #[test]
    fn who_asks_to_wait_has_patience_for_longer_than_that() {
        for (words, seconds) in [
            ("contended --wait 20 --patience 1", 25),
            ("contended --wait 20", 30),
            ("contended --wait 20 --patience 40", 40),
            ("contended --patience 1", 1),
        ] {
            assert_eq!(run(words).patience().as_secs(), seconds, "{words}");
        }
    }

    #[test]
    fn what_is_under_way_when_measuring_begins_is_not_more_than_is_measured() {
        let fits = |words: &str| run(&format!("fill --connections 2 --depth 2 {words}")).shape.shape(0).is_ok();
        for words in
            ["--requests 3", "--requests 4 --warmup", "--requests 3 --warmup --rate 100", "--seconds 1 --warmup"]
        {
            assert!(fits(words), "{words}");
        }
        assert!(!fits("--requests 3 --warmup"));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for words in [
            "blocks --prefix-length 4",
            "blocks --prefix-length 33",
            "blocks --cidr 10.0.0.0/24 --prefix-length 24",
            "churn --fill-level 1.5",
            "fill --no-create --cidr 10.0.0.0/8",
            "churn --no-create --fill-level 0.1,0.9",
            "restart-storm --start memory --kill",
            "fill --save /nowhere/at/all.json",
            "ipv6 --cidr 10.0.0.0/8",
            "restart-storm --warmup 1",
        ] {
            assert!(said(words).is_some(), "{words}");
        }
        assert_eq!(said("blocks --cidr 2001:db8::/64 --prefix-length 96"), None);
    }
}
