#!/usr/bin/env python3
"""Writes address-plan.toml: the address plan of Fjordline, an operator that does not exist.

    tests/data/make_address_plan.py          writes it
    tests/data/make_address_plan.py --check  ends with 1 if the file is not what this writes

No random numbers, no clock: the same file every time. How the plan is thought out stands in the head of the file;
whether it is valid is checked elsewhere (tests/it/address_plan.rs), by a program that shares nothing with this one.
"""

import ipaddress
import sys
from pathlib import Path

OUTPUT = Path(__file__).with_name("address-plan.toml")

HEAD = """\
# The address plan of Fjordline: twelve sites, two of them large, customers with networks of their own.
#
# Written by make_address_plan.py; change that and run it. `allod network apply` loads it in one go.
#
#   10.S.0.0/16            site number S, cut by role (the same offsets everywhere, so people know them by heart)
#   100.64.0.0/10          pods of the Kubernetes clusters: a /12 for the two large sites, a /16 for the middle ones
#   172.16.0.0/12          machine rooms that are merged: still numbered as they came
#   192.0.2.0/24, 198.51.100.0/24, 203.0.113.0/24    public
#   2001:db8:SS00::/40     site number S (in hexadecimal); one /64 for each role, /48s for customers
#
#   offset  role                         offset  role
#   0       management                   64      build farm
#   2       hypervisors                  96      databases
#   4, 5    storage fabrics A and B      100     caches
#   6       control plane                101     monitoring
#   7       DMZ                          102     building: doors, meters, printers
#   8       virtual addresses            104     cameras (moving to 105)
#   16      offices                      106     telephones
#   32      Kubernetes nodes             254     links between routers
#   48      Kubernetes services          255     loopbacks
#
# Zones are the fire sections of a site: `osl1-a`, `osl1-b`, … A network says 60 s of cooldown and yields it when full,
# unless its comment says why not.
"""

# Name, number, city, size. Large: three zones and every role. Middle: two zones. Small: one room.
SITES = [
    ("osl1", 10, "Oslo Ulven", "large"),
    ("sto1", 11, "Stockholm Kista", "large"),
    ("cph1", 12, "Copenhagen Ballerup", "middle"),
    ("hel1", 13, "Helsinki Pitajanmaki", "middle"),
    ("fra1", 14, "Frankfurt Ost", "middle"),
    ("ams1", 15, "Amsterdam Zuidoost", "middle"),
    ("lon1", 16, "London Docklands", "middle"),
    ("bgo1", 17, "Bergen Sandsli", "small"),
    ("got1", 18, "Gothenburg Gamlestaden", "small"),
    ("aar1", 19, "Aarhus Skejby", "small"),
    ("tmp1", 20, "Tampere Hervanta", "small"),
    ("waw1", 21, "Warsaw Ochota", "small"),
]

lines = []


def text(value):
    """A TOML value on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, dict):
        pairs = (f"{k if k.replace('_', '').isalnum() else text(k)} = {text(v)}" for k, v in value.items())
        return "{ " + ", ".join(pairs) + " }"
    return "[" + ", ".join(text(item) for item in value) + "]"


def comment(*sentences):
    lines.extend(f"# {sentence}".rstrip() for sentence in sentences)


def network(name, *, cooled=True, **members):
    """Starts a network. Cooldown is spelled out: a plan is read by people who do not know the defaults."""
    lines.append("[[network]]")
    lines.append(f"name = {text(name)}")
    if cooled:
        members = {**members, "cooldown_seconds": 60, "cooldown_yields": True}
    for key, value in members.items():
        lines.append(f"{key} = {text(value)}")
    lines.append("")


def subnet(cidr, **members):
    """A subnet of the network that was started last."""
    lines.append("[[network.subnets]]")
    lines.append(f"cidr = {text(cidr)}")
    for key, value in members.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            lines.append(f"{key} = [")
            lines.extend(f"    {text(item)}," for item in value)
            lines.append("]")
        else:
            lines.append(f"{key} = {text(value)}")
    lines.append("")


def pool(span, name=None, kind=None, draining=None):
    members = {"range": span, "name": name, "kind": kind, "draining": draining}
    return {key: value for key, value in members.items() if value is not None}


def held(span, note, owner=None, scope=None, slot=None):
    """A reserved range, for somebody or for nobody."""
    whom = {key: value for key, value in {"scope": scope, "owner": owner, "slot": slot}.items() if value is not None}
    return {"range": span, "note": note, **({"for": whom} if whom else {})}


class Site:
    def __init__(self, name, number, city, size):
        self.name, self.number, self.city, self.size = name, number, city, size
        self.zones = [f"{name}-{letter}" for letter in {"large": "abc", "middle": "ab", "small": "a"}[size]]
        self.dns = [f"10.{number}.6.53", f"10.{number}.6.54"]
        self.search = [f"{name}.fjordline.example", "fjordline.example"]

    def v4(self, rest):
        return f"10.{self.number}.{rest}"

    def v6(self, role, rest):
        """`role` is the offset, written in hexadecimal in the fourth group; `rest` may end in a prefix length."""
        joint = ":" if rest.count(":") == 3 else "::"
        address, slash, length = f"2001:db8:{self.number:x}00:{role:x}{joint}{rest}".partition("/")
        return f"{ipaddress.IPv6Address(address)}{slash}{length}"

    def tags(self, role, **more):
        return {"site": self.name, "role": role, **more}

    def resolver(self):
        return {"servers": self.dns, "search": self.search}

    def write(self):
        lines.append("#" * 100)
        comment(f"{self.name}: {self.city} ({self.size}, zones {', '.join(self.zones)})", "")
        self.management()
        self.hypervisors()
        self.storage()
        self.control_plane()
        self.dmz()
        self.virtual()
        self.offices()
        if self.size != "small":
            self.kubernetes()
            self.build_farm()
        self.databases()
        self.caches_and_monitoring()
        self.building()
        self.links()
        self.loopbacks()

    def management(self):
        comment("Consoles and power. Boards are wired to a port: every address is a claim, DHCP only for discovery.")
        network(f"{self.name}-mgmt", tags=self.tags("mgmt"), protected=True, l2={"mode": "bridged", "link": "br-mgmt"},
                description=f"Out-of-band management, {self.city}")
        subnet(self.v4("0.0/23"), name="mgmt-v4", gateway=self.v4("0.1"), dhcp=True, dns=self.resolver(), pools=[
            pool(f"{self.v4('0.32')}-{self.v4('0.255')}", "boards", "static"),
            pool(f"{self.v4('1.0')}-{self.v4('1.127')}", "boards", "static"),
            pool(self.v4("1.128/26"), "discovery"),
        ], reserved=[
            held(self.v4("0.2+6"), "core and row switches, numbered by the network team"),
            held(self.v4("0.10"), "serial console server", "console", self.name, "a"),
            held(self.v4("0.11"), "serial console server", "console", self.name, "b"),
        ])
        subnet(self.v6(0, "/64"), name="mgmt-v6", gateway="fe80::1", pools=[
            pool(f"{self.v6(0, '1:0')}-{self.v6(0, '1:ffff')}", "boards", "static"),
            pool(self.v6(0, "2:0/112"), "discovery"),
        ])

    def hypervisors(self):
        comment("One subnet for each fire section; a machine asks with its zone. The last sixteen are for machines that",
                "must keep their number through a rebuild of the register itself.")
        network(f"{self.name}-hosts", tags=self.tags("hypervisor"), limits={"per_owner": 4},
                l2={"mode": "bridged", "link": "br-hosts", "mac_prefix": f"aa:{self.number:02x}:02"})
        width = {1: 256, 2: 128, 3: 64}[len(self.zones)]
        length = {256: 24, 128: 25, 64: 26}[width]
        for index, zone in enumerate(self.zones):
            base = index * width
            subnet(self.v4(f"2.{base}/{length}"), name=f"hosts-{zone[-1]}", gateway=self.v4(f"2.{base + 1}"),
                   zones=[zone], dns=self.resolver(), pools=[
                pool(f"{self.v4(f'2.{base + 8}')}-{self.v4(f'2.{base + width - 18}')}", "hosts"),
                pool(f"{self.v4(f'2.{base + width - 17}')}-{self.v4(f'2.{base + width - 2}')}", "pinned", "static"),
            ], reserved=[held(self.v4(f"2.{base + 2}+2"), "first-hop routers")])
            subnet(self.v6(0x20 + index, "/64"), name=f"hosts6-{zone[-1]}", gateway="fe80::1", zones=[zone], pools=[
                pool(self.v6(0x20 + index, "1:0/112"), "hosts"),
            ])

    def storage(self):
        comment("Two fabrics that must never meet: no gateway, no DNS, every address claimed by the array's own number.")
        for fabric, offset in (("a", 4), ("b", 5)):
            network(f"{self.name}-storage-{fabric}", static_only=True, cooled=False,
                    tags=self.tags("storage", fabric=fabric), l2={"mode": "bridged", "link": f"br-san{fabric}"})
            subnet(self.v4(f"{offset}.0/24"), name=f"fabric-{fabric}", pools=[
                pool(f"{self.v4(f'{offset}.10')}-{self.v4(f'{offset}.49')}", "targets", "static"),
                pool(f"{self.v4(f'{offset}.64')}-{self.v4(f'{offset}.254')}", "initiators", "static"),
            ], reserved=[held(self.v4(f"{offset}.200/29"), "replication, cut over in the spring")])
        comment("Memory of running machines moves here: no addresses of ours, the link is enough.")
        network(f"{self.name}-migration", tags=self.tags("migration"), cooled=False,
                l2={"mode": "bridged", "link": "br-live", "mac_prefix": f"aa:{self.number:02x}:04"})

    def control_plane(self):
        comment("The gateway is the last address, since the days when .1 was the old firewall.")
        network(f"{self.name}-control", tags=self.tags("control"), protected=True,
                description="Name servers, time, the register itself")
        subnet(self.v4("6.0/24"), name="control-v4", gateway=self.v4("6.254"), dns=self.resolver(), pools=[
            pool(f"{self.v4('6.10')}-{self.v4('6.49')}", "fixed", "static"),
            pool(f"{self.v4('6.100')}-{self.v4('6.149')}", "services"),
            pool(f"{self.v4('6.150')}-{self.v4('6.199')}", "services"),
            pool(f"{self.v4('6.200')}-{self.v4('6.219')}", "fixed", "static"),
        ], reserved=[
            held(self.v4("6.53"), "resolver", "resolver", "dns", "0"),
            held(self.v4("6.54"), "resolver", "resolver", "dns", "1"),
            held(self.v4("6.120"), "the next register node", "allod/2", "registers"),
            held(f"{self.v4('6.123')}-{self.v4('6.125')}", "time servers"),
        ])
        subnet(self.v6(6, "/64"), name="control-v6", gateway=self.v6(6, "ffff"), dns={"servers": [self.v6(6, "53")]},
               pools=[
            pool(self.v6(6, "1:0/112"), "services"),
            pool(self.v6(6, "2:0/112"), "fixed", "static"),
        ], reserved=[held(self.v6(6, "53"), "resolver", "resolver", "dns", "6")])

    def dmz(self):
        comment("Facing out. Random, so that nobody outside can count our machines.")
        network(f"{self.name}-dmz", policy="random", tags=self.tags("dmz", exposure="public"), limits={"per_owner": 8})
        subnet(self.v4("7.0/25"), name="dmz-v4", gateway=self.v4("7.1"), dns=self.resolver(), pools=[
            pool(self.v4("7.32/27"), "front"), pool(self.v4("7.64/26"), "front"),
        ])
        subnet(self.v6(7, "/64"), name="dmz-v6", gateway="fe80::1", pools=[
            pool(self.v6(7, "f:0:0/96"), "front"),
        ])

    def virtual(self):
        comment("Addresses that follow a service. Claimed by name; the small pool is for those that do not care.")
        network(f"{self.name}-vip", kind="vip", tags=self.tags("vip"))
        subnet(self.v4("8.0/27"), name="vip-v4", pools=[
            pool(f"{self.v4('8.2')}-{self.v4('8.15')}", "named", "static"), pool(self.v4("8.16/29"), "any"),
        ], reserved=[held(self.v4("8.30"), "load balancer of the intranet", "intranet", "vip")])
        subnet(self.v6(8, "/64"), name="vip-v6", pools=[pool(self.v6(8, "8:0/125"), "any")])

    def offices(self):
        size = {"large": 20, "middle": 22, "small": 24}[self.size]
        last_block = {20: 31, 22: 19, 24: 16}[size]
        comment("People. DHCP hands out what the register says; a laptop keeps its address for a while.")
        network(f"{self.name}-office", policy="oldest", tags=self.tags("office"), limits={"per_owner": 3},
                cooled=False, cooldown_seconds=3600, cooldown_yields=True)
        if size == 24:
            pools = [pool(f"{self.v4('16.20')}-{self.v4('16.99')}", "wired"),
                     pool(f"{self.v4('16.100')}-{self.v4('16.250')}", "wireless")]
        else:
            pools = [pool(f"{self.v4('16.20')}-{self.v4('16.255')}", "wired"),
                     pool(f"{self.v4('17.0')}-{self.v4(f'{last_block}.199')}", "wireless"),
                     pool(f"{self.v4(f'{last_block}.200')}-{self.v4(f'{last_block}.239')}", "meeting-rooms", "static")]
        subnet(self.v4(f"16.0/{size}"), name="office-v4", gateway=self.v4("16.1"), dhcp=True, dns=self.resolver(),
               pools=pools, reserved=[held(self.v4("16.2+8"), "access points' controllers and the gate to the guests")])
        subnet(self.v6(0x10, "/64"), name="office-v6", gateway="fe80::1", dhcp=True,
               dns={"servers": [self.v6(6, "53")], "search": self.search},
               pools=[pool(self.v6(0x10, "a:0:0:0/80"), "wireless"), pool(self.v6(0x10, "b:0:0:0/80"), "wired")])

    def kubernetes(self):
        comment("Nodes: a subnet for each zone, so that the scheduler's spread is the network's spread.")
        network(f"{self.name}-k8s-nodes", tags=self.tags("k8s", layer="nodes"), limits={"per_scope": 4000})
        for index, zone in enumerate(self.zones):
            third = 32 + 4 * index
            subnet(self.v4(f"{third}.0/22"), name=f"nodes-{zone[-1]}", gateway=self.v4(f"{third}.1"), zones=[zone],
                   dhcp=index == 0, dns=self.resolver(), pools=[
                pool(f"{self.v4(f'{third}.64')}-{self.v4(f'{third + 3}.191')}", "nodes"),
                pool(self.v4(f"{third + 3}.192/26"), "ingress", "static"),
            ], reserved=[held(self.v4(f"{third}.2+14"), "first-hop routers and room to grow")])
        for index, zone in enumerate(self.zones):
            subnet(self.v6(0x30 + index, "/64"), name=f"nodes6-{zone[-1]}", gateway="fe80::1", zones=[zone],
                   pools=[pool(self.v6(0x30 + index, "/72"), "nodes")])

        pods = {"osl1": "100.64.0.0/12", "sto1": "100.80.0.0/12"}.get(self.name, f"100.{100 + self.number}.0.0/16")
        comment("Pods: each node takes a /24 (IPv4) and a /80 (IPv6) as blocks and divides them itself.")
        network(f"{self.name}-k8s-pods", tags=self.tags("k8s", layer="pods"),
                description="Blocks for nodes: --prefix-length 24 or 80")
        base = pods.rsplit(".", 2)[0]
        start = int(base.split(".")[1])
        end = start + (15 if pods.endswith("/12") else 0)
        subnet(pods, name="pods-v4", pools=[
            pool(f"100.{start}.16.0-100.{end}.255.255", "pods"),
            pool(f"100.{start}.0.0/20", "daemons", "static"),
        ])
        subnet(self.v6(0x40, "/64"), name="pods-v6")

        comment("Service addresses: the cluster draws these itself; here they are kept from everybody else.")
        network(f"{self.name}-k8s-services", static_only=True, tags=self.tags("k8s", layer="services"))
        subnet(self.v4("48.0/20"), name="services-v4", pools=[
            pool(self.v4("48.0/24"), "fixed", "static"), pool(f"{self.v4('49.0')}-{self.v4('63.255')}", "any", "static"),
        ], reserved=[held(self.v4("48.1"), "API server", "kubernetes", self.name), held(self.v4("48.10"), "cluster DNS")])

    def build_farm(self):
        comment("Machines live for minutes. Oldest first, so that a number comes back as late as can be.")
        network(f"{self.name}-build", policy="oldest", tags=self.tags("build"), limits={"per_owner": 16, "per_scope": 6000})
        subnet(self.v4("64.0/19"), name="build-v4", gateway=self.v4("64.1"), dns=self.resolver(), pools=[
            pool(f"{self.v4('64.10')}-{self.v4('79.255')}", "runners"),
            pool(f"{self.v4('80.0')}-{self.v4('94.255')}", "runners"),
            pool(f"{self.v4('95.0')}-{self.v4('95.250')}", "signing", "static"),
        ], reserved=[held(self.v4("70.0/24"), "a runner's image has this one built in; ask the build team")])
        subnet(self.v6(0x50, "/64"), name="build-v6", gateway="fe80::1", pools=[pool(self.v6(0x50, "1:0:0:0/80"), "runners")])

    def databases(self):
        comment("Numbers of databases are in configuration files of others: an hour before one is used again, and never",
                "sooner, even when the pool is full.")
        network(f"{self.name}-db", cooled=False, cooldown_seconds=3600, protected=True, tags=self.tags("database"))
        subnet(self.v4("96.0/23"), name="db-v4", gateway=self.v4("97.254"), dns=self.resolver(), zones=self.zones[:1],
               pools=[
            pool(f"{self.v4('96.16')}-{self.v4('96.127')}", "primary", "static"),
            pool(f"{self.v4('96.128')}-{self.v4('97.191')}", "replica"),
        ], reserved=[held(self.v4("96.16"), "billing", "billing/0", "databases", "primary")])
        if len(self.zones) > 1:
            subnet(self.v4("98.0/23"), name="db-v4-far", gateway=self.v4("99.254"), zones=self.zones[1:], pools=[
                pool(f"{self.v4('98.16')}-{self.v4('98.127')}", "primary", "static"),
                pool(f"{self.v4('98.128')}-{self.v4('99.191')}", "replica"),
            ])

    def caches_and_monitoring(self):
        network(f"{self.name}-cache", tags=self.tags("cache"))
        subnet(self.v4("100.0/25"), name="cache-v4", gateway=self.v4("100.1"), pools=[pool(self.v4("100.64/26"), "cache")])
        subnet(self.v4("100.128/25"), name="cache-v4-more", gateway=self.v4("100.129"), pools=[
            pool(self.v4("100.192/26"), "cache")])
        network(f"{self.name}-monitoring", tags=self.tags("monitoring"), description="Probes reach everything from here")
        subnet(self.v4("101.0/26"), name="monitoring-v4", gateway=self.v4("101.1"), dns=self.resolver(), pools=[
            pool(self.v4("101.8/29"), "collectors", "static"), pool(f"{self.v4('101.16')}-{self.v4('101.62')}", "probes"),
        ])
        subnet(self.v6(0x65, "/64"), name="monitoring-v6", gateway="fe80::1", pools=[
            pool(self.v6(0x65, "1:0/120"), "collectors", "static"), pool(self.v6(0x65, "2:0/112"), "probes"),
        ])

    def building(self):
        comment("Things in walls: their addresses are typed in by electricians.")
        network(f"{self.name}-building", tags=self.tags("building"))
        subnet(self.v4("102.0/23"), name="building-v4", gateway=self.v4("102.1"), dhcp=True, pools=[
            pool(f"{self.v4('102.10')}-{self.v4('102.199')}", "doors", "static"),
            pool(f"{self.v4('102.200')}-{self.v4('102.254')}", "meters"),
            pool(self.v4("103.0/25"), "printers", "static"),
        ], reserved=[held(self.v4("103.128/25"), "the extension on the roof, 2027")])
        comment("Cameras leave 104 for 105: nothing new there, what is held stays until it is moved.")
        network(f"{self.name}-cameras", tags=self.tags("cameras"))
        subnet(self.v4("104.0/24"), name="cameras-old", gateway=self.v4("104.1"), draining=True, pools=[
            pool(f"{self.v4('104.10')}-{self.v4('104.249')}", "cameras")])
        subnet(self.v4("105.0/24"), name="cameras", gateway=self.v4("105.1"), pools=[
            pool(f"{self.v4('105.10')}-{self.v4('105.199')}", "cameras"),
            pool(f"{self.v4('105.200')}-{self.v4('105.249')}", "recorders", draining=True)])
        if self.size != "small":
            network(f"{self.name}-voice", tags=self.tags("voice"))
            subnet(self.v4("106.0/23"), name="voice-v4", gateway=self.v4("106.1"), dhcp=True, pools=[
                pool(f"{self.v4('106.20')}-{self.v4('107.250')}", "phones")])

    def links(self):
        comment("Between routers: two addresses each, no gateway, both ends claimed.")
        network(f"{self.name}-links", static_only=True, cooled=False, tags=self.tags("links"))
        for index in range({"large": 8, "middle": 4, "small": 2}[self.size]):
            base = index * 2
            subnet(self.v4(f"254.{base}/31"), name=f"link-{index}", pools=[pool(self.v4(f"254.{base}/31"), "ends", "static")])
            subnet(self.v6(0xfe, f"{base:x}/127"), name=f"link6-{index}",
                   pools=[pool(self.v6(0xfe, f"{base:x}/127"), "ends", "static")])

    def loopbacks(self):
        network(f"{self.name}-loopbacks", static_only=True, cooled=False, tags=self.tags("loopback"))
        subnet(self.v4("255.0/24"), name="loopbacks-v4", pools=[pool(self.v4("255.1-") + self.v4("255.254"), "routers", "static")],
               reserved=[held(self.v4("255.1"), "first route reflector", "rr/0", "backbone"),
                         held(self.v4("255.2"), "second route reflector", "rr/1", "backbone")])
        subnet(self.v6(0xff, "/64"), name="loopbacks-v6", pools=[pool(self.v6(0xff, "1:0/112"), "routers", "static")])


def everywhere():
    lines.append("#" * 100)
    comment("What no single site owns", "")
    comment("Public space. The /24s are cut as they were sold: firewalls, mail, customers with a few addresses of their own.")
    network("public-edge", tags={"role": "edge", "exposure": "public"}, protected=True)
    subnet("192.0.2.0/29", name="firewalls", gateway="192.0.2.1", pools=[pool("192.0.2.2-192.0.2.6", "firewalls", "static")])
    subnet("192.0.2.8/29", name="mail", gateway="192.0.2.9", pools=[pool("192.0.2.10-192.0.2.14", "mail", "static")],
           reserved=[held("192.0.2.14", "its reputation is ruined; leave it alone until 2028")])
    subnet("192.0.2.16/28", name="web", gateway="192.0.2.30", pools=[pool("192.0.2.17-192.0.2.29", "web")])
    subnet("192.0.2.32/27", name="vpn", gateway="192.0.2.33", pools=[pool("192.0.2.48/28", "vpn")])
    comment("Floating addresses that customers rent: at most five each, an hour between two tenants.")
    network("public-floating", policy="random", cooled=False, cooldown_seconds=3600, limits={"per_owner": 5, "per_scope": 64},
            tags={"role": "floating", "exposure": "public"})
    subnet("198.51.100.0/25", name="floating-north", gateway="198.51.100.1", zones=["osl1-a", "osl1-b", "osl1-c"])
    subnet("198.51.100.128/25", name="floating-south", gateway="198.51.100.129", zones=["fra1-a", "fra1-b"])
    comment("Blocks for customers who bring a router: `--prefix-length 29`.")
    network("public-blocks", tags={"role": "blocks", "exposure": "public"})
    subnet("203.0.113.0/25", name="blocks", pools=[pool("203.0.113.0/26", "blocks"), pool("203.0.113.64/27", "blocks")],
           reserved=[held("203.0.113.96/27", "sold, not wired", "nordlys", "customers")])
    comment("Addresses that every site announces. One address, one network: who holds it is who announces it.")
    for index, service in enumerate(["dns", "ntp", "log", "mirror", "secrets"]):
        network(f"anycast-{service}", kind="vip", cooled=False, tags={"role": "anycast", "service": service})
        subnet(f"203.0.113.{200 + index}/32", name="v4", pools=[pool(f"203.0.113.{200 + index}", service)])
        subnet(f"2001:db8:ffff::{index + 1:x}/128", name="v6", pools=[pool(f"2001:db8:ffff::{index + 1:x}", service)])
    comment("A customer's line takes a /56; a site's worth of them is a /48.")
    network("delegated", tags={"role": "delegation"}, description="IPv6 prefixes for customers: --prefix-length 56")
    for index, site in enumerate(SITES[:7]):
        subnet(f"2001:db8:{0x8000 + index:x}::/48", name=f"lines-{site[0]}", zones=[f"{site[0]}-a"])
    subnet("2001:db8:8fff::/48", name="lines-lab", draining=True)
    comment("IPv6 alone, the test bed of the year after next. One subnet is a /52, one a /60.")
    network("lab-six", tags={"role": "lab"}, policy="random")
    subnet("2001:db8:9000::/52", name="wide", gateway="fe80::1", pools=[pool("2001:db8:9000:1::/64", "hosts"),
                                                                     pool("2001:db8:9000:100::/56", "blocks")])
    subnet("2001:db8:9001::/60", name="narrow", gateway="2001:db8:9001::1", pools=[pool("2001:db8:9001::100/120", "hosts")])
    comment("Machines whose infrastructure picks their address; the register keeps who is there, not where.")
    for site in ("osl1", "sto1", "fra1"):
        network(f"{site}-cloud", kind="dynamic", cooled=False, tags={"site": site, "role": "cloud"})
    comment("From the machine rooms that came with the merger; numbered as they came, renumbered one by one.")
    for index, (room, note) in enumerate([("viking", "Stavanger"), ("saga", "Malmo"), ("edda", "Turku"), ("ymir", "Odense")]):
        network(f"merged-{room}", tags={"role": "merged", "room": room}, description=f"Former {room.title()} room in {note}")
        second = 16 + 2 * index
        subnet(f"172.{second}.0.0/16", name="flat", gateway=f"172.{second}.0.1", draining=index == 3, pools=[
            pool(f"172.{second}.1.0-172.{second}.127.255", "machines"),
            pool(f"172.{second}.128.0/18", "machines", draining=True),
            pool(f"172.{second}.192.0/18", "by-hand", "static"),
        ], reserved=[held(f"172.{second}.5.0/24", "found in use on the day of the merger, owner unknown"),
                     held(f"172.{second}.9.7", "the old mainframe", "mainframe", "merged")])
        subnet(f"172.{second + 1}.0.0/17", name="spare", pools=[])
    comment("The length of a name is bounded by 128 characters, and somebody always needs them all.")
    long_name = "partner:north-sea/wind-farm-07:" + "turbine-array/" * 6 + "substation.b"
    long_name += "x" * (128 - len(long_name))
    network(long_name, tags={"role": "partner"})
    subnet("10.200.0.0/29", name="s" * 128, gateway="10.200.0.6", pools=[pool("10.200.0.1-10.200.0.5", "p" * 128)])


def customers():
    lines.append("#" * 100)
    comment("Customers: a realm each, because all of them begin with 10.0.0.0/24", "")
    names = ["nordlys", "havbruk", "skogen", "fjellrein", "brisling", "tindeby", "lofotposten", "sildesalat",
             "trollstigen", "vadsoe-havn", "rorosmeieriet", "kvitfjell", "blaabaer", "isbre", "maelstrom", "granvik"]
    for index, name in enumerate(names):
        for part, third in (("front", 0), ("back", 1)):
            network(f"{name}/{part}", realm=f"customer:{name}", tags={"customer": name, "part": part},
                    limits={"per_owner": 2, "per_scope": 200})
            subnet(f"10.0.{third}.0/24", name="v4", gateway=f"10.0.{third}.1", dhcp=True, pools=[
                pool(f"10.0.{third}.20-10.0.{third}.99", "machines"),
                pool(f"10.0.{third}.100-10.0.{third}.119", "fixed", "static"),
                pool(f"10.0.{third}.120-10.0.{third}.{199 + index}", "machines"),
            ], reserved=[held(f"10.0.{third}.2-10.0.{third}.9", "the customer's own routers")])
            subnet(f"fd00:{index + 1:x}:0:{third:x}::/64", name="v6", gateway="fe80::1", dhcp=True)
    comment("One customer is larger than our whole site: the realm keeps it out of everybody's way.")
    network("nordlys/everything", realm="customer:nordlys-legacy", policy="random", tags={"customer": "nordlys"})
    subnet("10.0.0.0/12", name="v4", gateway="10.15.255.254", pools=[
        pool("10.1.0.0/16", "machines"), pool("10.2.0.0/15", "machines"), pool("10.4.0.0/14", "machines")],
        reserved=[held("10.4.0.0/16", "still routed to the old house")])


def plan():
    lines.clear()
    lines.append(HEAD)
    for site in SITES:
        Site(*site).write()
    everywhere()
    customers()
    return "\n".join(lines).rstrip("\n") + "\n"


def main():
    wanted = plan()
    if "--check" in sys.argv[1:]:
        if OUTPUT.read_text() != wanted:
            sys.exit(f"{OUTPUT.name} is not what make_address_plan.py writes; run it")
        return
    OUTPUT.write_text(wanted)
    print(f"{OUTPUT.name}: {wanted.count('[[network]]')} networks, {wanted.count('[[network.subnets]]')} subnets")


if __name__ == "__main__":
    main()
