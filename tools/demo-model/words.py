"""Writes the words that the demo model knows: the names and the grammar of its captions (data.py), and what people say instead.

    python tools/demo-model/words.py ../shared/data/emoji models/demo/words.txt

The format is in the head of the file that it writes. everyday2.py counts what the model makes of what people type.
"""

import json
import lzma
import pathlib
import re
import sys

import data

HEAD = """\
# Words that this model knows, for people and for programs. A line is
#
#     KNOWN, KNOWN, ... = WORD, WORD, ... ~ WORD, WORD, ...
#
# The model was trained with KNOWN. A WORD after = is read as the first KNOWN of its line (as nothing, if the line begins with
# =). A WORD after ~ has to do with it: whoever asks for such a word is told of KNOWN. The line "= *" reads all other words as nothing,
# and with them a KNOWN that refers to them: "big ..." to what comes after it, "... style" to what comes before it, and "... in ..."
# joins two. "= without ..." is read as nothing, with what comes after it, and "= ... or ..." goes on with that. The second KNOWN of a
# thing is its plural. Words of the line that ends in "= ..." say how many; a plural without one gets the first. Words of a line with
# "$" after = change a picture. src/text/vocabulary.c has the rules. Made by tools/demo-model/words.py.
"""

# Words of the training that belong to one thing only (Things.other) and name it. They came in a tenth of its captions, which
# was too little: "a bike" gave a petri dish. Adjectives, verbs and words for something else were left out by hand.
NOUNS = """
pumpkin firework dynamite koinobori present frisbee pingpong shuttlecock sleigh toboggan sledge yoyo revolver handgun billiards
console controller gamepad playstation dice puzzle jigsaw matryoshka crochet rope twine puppy doge doggo kitty housecat jaguar
mule reindeer stag buffalo bullock warthog lamb dromedary alpaca guanaco rhino hippo dormouse joey cockerel mallard cygnet
peahen crow toad alligator croc tortoise terrapin gecko python brachiosaurus brontosaurus diplodocus tyrannosaurus trex
pufferfish seashell reef slug bumblebee ladybug ladybird grasshopper roach cobweb spiderweb earthworm amoeba germ sakura daisy
sprout houseplant clover leaves grape cantaloupe honeydew mandarin plantain blueberry gooseberry kiwifruit olives aubergine maize
chilli chili capsicum pickle gherkin kale peanut acorn gingerbread radish loaf naan flapjacks steak cheeseburger chips frankfurter
hotdog sausage wiener gyro doner meatball casserole paella curry stew porridge cereal oatmeal onigiri ramen noodles pasta sashimi
tempura mooncake empanada pierogi gyoza icecream donut biscuit lolly lollypop pudding flan latte espresso kettle matcha martini
cocktail bourbon scotch soda milkshake smoothie boba silverware eyewear polo tshirt trousers jacket stockings skirt bathers blouse
wallet rucksack satchel jandals sneakers sneaker slipper stiletto heels comb necklace rosary makeup ruby gemstone bugle
earphones earphone piano conga djembe recorder smartphone handset beeper charger monitor imac trackpad camcorder torch novel
parchment coins moneybag crate treasure parcel mailbox ballpoint hatchet pickaxe cogwheel capsule plaster cane bones sofa settee
sunscreen shampoo diaper cask casket grave tombstone amulet talisman statue policeman policewoman builder fist physician swimmer
ballerina toddler newborn bigfoot sasquatch cherub footprint campsite yurt fortress eiffel skyline railroad subway tube
minivan campervan motorhome motorbike vespa highway road tire powerboat dinghy saturn galaxy universe whirlpool lightning twister
parasol flame tsunami wristwatch
""".split()

# Common words by hand. The last nine were added after the held-out half of everyday.txt had been counted.
SYNONYMS = """
hot beverage = coffee, cup of coffee, mug of coffee, mug
bicycle = bike
laptop = computer, notebook computer
desktop computer = pc
airplane = plane, aeroplane, jet
automobile = car
mobile phone = phone, cellphone, cell phone, iphone
deciduous tree = tree, oak tree
evergreen tree = pine tree, fir tree, pine
tulip = flower
beer mug = beer, glass of beer, pint of beer
hamburger = burger
soccer ball = ball
soft ice cream = ice cream cone
rabbit = bunny
television = tv, tv set, telly
couch and lamp = couch
crescent moon = moon
sailboat = boat, sailing boat, yacht
red heart = heart
teacup without handle = tea, cup of tea, green tea
mage = wizard, magician
woman mage = witch, sorceress
metro = underground train
house = home, cottage
office building = skyscraper
cityscape = city, town
beach with umbrella = beach
desert island = island
cloud with rain = rain
snowflake = snow
water wave = wave, ocean, sea
globe showing europe-africa = earth, globe, planet earth
ringed planet = planet
ewe = sheep
baby chick = chick
pig = piggy
honeybee = bee
t-rex = dinosaur, dino
tropical fish = goldfish
eagle = hawk
chipmunk = squirrel
green salad = salad
cheese wedge = cheese
meat on bone = meat
poultry leg = chicken leg, drumstick
cooked rice = rice, bowl of rice
chocolate bar = chocolate
honey pot = honey
red apple = apple
cherries = cherry
ear of corn = corn
hot pepper = chili pepper, chilli pepper
glass of milk = milk
bottle with popping cork = champagne
tumbler glass = whiskey, whisky
child = kid
health worker = doctor
woman health worker = nurse
cook = chef
man police officer = cop
clown face = clown
baby angel = angel
smiling face with horns = devil
ogre = monster
skull = skeleton
santa claus = santa
flexed biceps = muscle, muscles
smiling face with smiling eyes = smiley, smile
alarm clock = clock
hourglass done = hourglass
light bulb = lightbulb, bulb
closed book = book
envelope = letter, mail
locked = lock, padlock
carpentry saw = saw
kitchen knife = knife
fork and knife = fork, cutlery
pot of food = pot
handbag = bag, purse
luggage = suitcase
top hat = hat
billed cap = cap, baseball cap
t-shirt = shirt
jeans = pants
running shoe = shoe, trainer
high-heeled shoe = high heels, high heel
necktie = tie
money bag = money
dollar banknote = dollar, banknote
gem stone = diamond, jewel, gem
1st place medal = gold medal, medal
game die = die
chess pawn = chess
teddy bear = toy bear, teddy
musical keyboard = keyboard instrument
optical disk = cd
flying saucer = ufo
bow and arrow = bow
world map = map
potted plant = plant
fire engine = fire truck
house with garden = garden
shortcake = cake, slice of cake, piece of cake
rocket = spaceship
steaming bowl = soup, bowl of soup
cat face = kitten
delivery truck = truck
wine glass = wine, glass of wine, bottle of wine
smiling face with smiling eyes = happy face, smiley face
evergreen tree = forest
horse = pony, foal, mare, stallion
mountain = hill
magnifying glass tilted left = magnifying glass, magnifier
tumbler glass = glass of water
french fries = fries
wrapped gift = gift
boxing glove = glove
treasure chest = chest
red paper lantern = lantern
articulated lorry = lorry
artist palette = palette
chess pawn = pawn
water pistol = pistol
electric plug = plug
fuel pump = petrol pump, gas pump
balance scale = scale
spiral shell = shell
playground slide = slide
crossed swords = swords
tokyo tower = tower
magic wand = wand
spider web = web
cheese wedge = slice of cheese
empty nest = nest
sewing needle = needle
musical note = note
spiral notepad = notepad
name badge = badge
adhesive bandage = bandage
prayer beads = beads
flexed biceps = biceps
wind chime = chime
nut and bolt = bolt, screw
shopping cart = cart
rice cracker = cracker
tropical drink = drink
nail polish = varnish
safety pin = pin
paw prints = paws
telephone receiver = receiver
safety vest = vest
hindu temple = temple
shinto shrine = shrine
kiwi fruit = kiwi
file cabinet = cabinet
fire extinguisher = extinguisher
roll of paper = toilet paper, paper roll
roller coaster = rollercoaster
ox = bull
dove = pigeon
eagle = falcon
bird = sparrow, robin, canary, budgie, seagull
fish = salmon, trout, tuna
lion = lioness
leopard = cheetah, panther
orangutan = ape, chimp, chimpanzee
pig = piglet, hog
cow = calf
chicken = hen
rabbit = hare
deer = elk
seal = sea lion, walrus
hamster = guinea pig
dog = husky, corgi, bulldog, beagle, dachshund, chihuahua, labrador, golden retriever, german shepherd
cat = tabby
honeybee = wasp
butterfly = moth
bug = caterpillar
shrimp = prawn
oyster = clam
cupcake = muffin
cooking = fried egg, omelette, omelet, frying pan, pan
bacon = ham
bread = toast, loaf of bread
leafy green = lettuce, cabbage, spinach
pea pod = pea
bell pepper = pepper
beverage box = juice, orange juice
cup with straw = coke, cola
jar = jam
hot beverage = cappuccino, coffee cup, hot chocolate, cup of hot chocolate
teacup without handle = tea cup
socks = a pair of socks
glasses = a pair of glasses, spectacles
jeans = a pair of jeans
socks = sock
woman's boot = boot
beans = bean
pancakes = pancake
skis = ski
thong sandal = flip flop, flip flops
cup with straw = cup, paper cup, plastic cup
bottle with popping cork = bottle
tumbler glass = glass, tumbler
bowl with spoon = bowl
fork and knife with plate = plate, dinner plate
amphora = vase
package = box, cardboard box
bullseye = target, dart
nesting dolls = toy, doll
chains = chain
goal net = net
gear = engine
paintbrush = brush
desktop computer = screen
manual wheelchair = wheelchair
camping = campfire, tent in the woods
aerial tramway = cable car
black bird = raven
cowboy hat face = cowboy
smiling face with horns = demon
artist = painter
man beard = man with a beard, bearded man, man with beard
woman red hair = girl with red hair, woman with red hair, redhead
man red hair = man with red hair
raised hand = hand
index pointing up = finger
flexed biceps = arm
mouth = lips
victory hand = peace sign
ok hand = ok sign
folded hands = praying hands
right arrow = arrow
cross mark = cross
check mark = tick mark, tick
euro banknote = euro
money bag = cash
recycling symbol = recycle
baguette bread = baguette
stuffed flatbread = kebab
fallen leaf = leaf
crossed swords = sword
joker = playing card
circus tent = circus
drop of blood = blood
first quarter moon = half moon
droplet = water drop
birthday cake = birthday, happy birthday, happy birthday cake
heart on fire = red heart on fire
basket = basket of fruit, basket of fruits, fruit basket, laundry basket, basket of laundry
shortcake = wedding cake
rocket = space shuttle, rocket ship
bird = kiwi bird
cloud with rain = rain cloud
tokyo tower = eiffel tower, tv tower
bridge at night = bridge
party popper = confetti
pool 8 ball = eight ball, billiard ball
jack-o-lantern = jack o lantern, jackolantern
scissors = a pair of scissors, pair of scissors
shorts = a pair of shorts
gloves = a pair of gloves
sunglasses = a pair of sunglasses
skis = a pair of skis
keycap 0 = number 0, the number 0
keycap 1 = number 1, the number 1
keycap 2 = number 2, the number 2
keycap 3 = number 3, the number 3
keycap 4 = number 4, the number 4
keycap 5 = number 5, the number 5
keycap 6 = number 6, the number 6
keycap 7 = number 7, the number 7
keycap 8 = number 8, the number 8
keycap 9 = number 9, the number 9
keycap 10 = number 10, the number 10
baby chick = duckling
tangerine = orange fruit, clementine
a button = letter a, the letter a
b button = letter b, the letter b
one o'clock = 1 o'clock, 1 oclock
two o'clock = 2 o'clock, 2 oclock
three o'clock = 3 o'clock, 3 oclock
four o'clock = 4 o'clock, 4 oclock
five o'clock = 5 o'clock, 5 oclock
six o'clock = 6 o'clock, 6 oclock
seven o'clock = 7 o'clock, 7 oclock
eight o'clock = 8 o'clock, 8 oclock
nine o'clock = 9 o'clock, 9 oclock
ten o'clock = 10 o'clock, 10 oclock
eleven o'clock = 11 o'clock, 11 oclock
twelve o'clock = 12 o'clock, 12 oclock
woman's sandal = sandal
coat = sweater, jumper, hoodie, raincoat
one-piece swimsuit = swimsuit
briefs = underwear
rescue worker's helmet = helmet
necktie = bow tie, bowtie
prince = king
princess = queen
woman = mother, mom, mum, lady, girlfriend, wife
man = father, dad, guy, boyfriend, husband
old woman = grandma, grandmother, granny
old man = grandpa, grandfather
person with veil = bride
person in tuxedo = groom
mechanic = plumber, electrician
technologist = programmer, engineer
singer = musician
detective = spy
firefighter = fireman, fire fighter
police officer = police man
farmer = gardener
person getting haircut = barber, hairdresser
woman dancing = dancer
military helmet = soldier
skull and crossbones = pirate
soccer ball = football
person running = runner
person surfing = surfing, surfer, surfboard
person biking = cyclist, cycling
person climbing = climber
skier = skiing
snowboarder = snowboard
ice skate = ice skating
ice hockey = hockey
martial arts uniform = judo, karate
bow and arrow = archery
bullseye = darts, dart board
ping pong = table tennis
tennis = tennis ball, tennis racket
flag in hole = golf, golf ball
fishing pole = fishing rod
person lifting weights = weights, dumbbell
person in lotus position = yoga
musical note = music note, music
violin = cello
guitar = ukulele, electric guitar, bass guitar
saxophone = sax
musical keyboard = synthesizer
minibus = van
kick scooter = push scooter
racing car = race car, sports car, racecar
sport utility vehicle = jeep
vertical traffic light = traffic light
passenger ship = cruise ship
canoe = kayak
rocket = space ship
station = train station
fuel pump = gas station
train = steam train
carousel horse = carousel
department store = shop, store, supermarket
classical building = museum
light bulb = lamp
framed picture = picture frame, poster
couch and lamp = armchair
bathtub = bath, bath tub
broom = mop, broomstick
wastebasket = trash can, trash, garbage, bin
straight ruler = ruler
abacus = calculator
speaker high volume = speaker
page facing up = paper, sheet of paper
video game = game controller
paperclip = paper clip
oil drum = barrel
water pistol = gun
pill = medicine
syringe = vaccine
microbe = virus
pile of poo = poop, poo
droplet = water, raindrop, drop of water
high voltage = thunder, lightning bolt
cloud with lightning and rain = storm, thunderstorm
cyclone = hurricane
wind face = wind
comet = meteor
milky way = space
night with stars = night, night sky
fallen leaf = autumn
herb = grass
red heart = love
party popper = party
christmas tree = christmas
jack-o-lantern = halloween
waving hand = hello
red question mark = question mark
red exclamation mark = exclamation mark
smiling face with heart-eyes = heart eyes
crying face = sad face
face with tears of joy = laughing face
t-shirt = t shirt, tee shirt
snowman = snow man
sunflower = sun flower
baseball = baseball bat
cricket game = cricket bat
poultry leg = chicken wing
pie = apple pie
chocolate bar = milk chocolate
house with garden = house with a garden
""".strip().splitlines()

# What prompts for other models hold, and the demo model has no use for.
FILLERS = """
cute, adorable, lovely, beautiful, gorgeous, pretty, nice, cool, awesome, amazing, stunning, epic, funny, fancy, wonderful,
fantastic, great, perfect, majestic, magical, mystical, crazy, vibrant, colorful, colourful, simple, minimalist, very, really, super,
realistic, photorealistic, hyperrealistic, photo realistic, detailed, highly detailed, ultra detailed, very detailed, intricate,
sharp focus, high quality, best quality, good quality, high resolution, high res, hd, uhd, full hd, 4k, 8k, 16k, 4k resolution,
8k resolution, masterpiece, professional, cinematic, dramatic, cinematic lighting, studio lighting, soft lighting, dramatic lighting,
digital art, digital painting, concept art, oil painting, fine art, trending on artstation, unreal engine, octane render, award winning,
award-winning, please, draw, draw me, paint, paint me, show me, make, make me, create, generate, give me, i want, at night, in the style of,
slice of, slices of, cup of, in the style of van gogh, van gogh, picasso, monet, ghibli, single, piece of, pieces of, pair of, pairs of, bottle of, bottles of, box of, plate of, pack of, me, my, you, your, can, could, for, is, are, it, that, 1,
which, this, happy, sad, sleeping, running, jumping, flying, sitting, standing, walking, dancing, striped, spotted, coloured, colored,
black and white
"""
MEDIA = "clipart sticker logo vector_icon photo photograph picture image painting oil_painting watercolor watercolour drawing sketch illustration render rendering"
MEDIA = [m.replace("_", " ") for m in (MEDIA + " portrait closeup close-up icon digital_painting realistic_photo").split()]

# Said with the things, in captions.
ALONE = "background left right top bottom corner drawing emoji picture".split()
ENDS = ["style"]  # refers to what comes before it
COUNTS = "three a an the one two four five six 2 3 4 5 6".split() + ["a pair of", "a couple of", "half a dozen"]
COUNTS += [f"add {n} more" for n in "one two three four five".split()]  # said with a reference picture
BEGINS = "small little tiny big large huge".split()  # to what comes after, too
JOINTS = "in on at of with to and above below over under next beside".split()  # to both
JOINTS += ["left of", "right of", "to the left of", "to the right of", "next to"]
GRAMMAR = ALONE + ENDS + COUNTS + BEGINS + JOINTS
COLOURS = sorted({*data.COLOURS, "violet"})
LIKE_COLOURS = {
    "red": "crimson, scarlet, maroon",
    "pink": "magenta",
    "yellow": "golden, gold",
    "grey": "silver",
    "light grey": "light gray",
    "light blue": "sky blue, azure",
    "dark blue": "navy blue",
    "teal": "cyan",
}

# Said with a reference picture (captions.py, instruct). "..." refers to what comes after.
EDITS = """
make it, make this, make the ..., make the background, change the background to, put it on, put this on, put the ..., paint it,
paint this, paint the ..., change its colour to, change its color to, turn it into, turn this into, redraw it, redraw this,
redraw the ..., as a ..., of them, of these, the same on, the same in, just one, only one, turn the ..., ... into ...
"""
MAY_EDIT = ["as a ...", "... into ...", "paint the ...", "just one", "only one", "bigger", "smaller"]  # said without one, too
LIKE_EDITS = {
    "bigger": "larger",
    "smaller": "",
    "make it bigger": "make it larger, enlarge it",
    "make it smaller": "shrink it",
}
FEW = "some, several, a few"
MORE = """seven, eight, nine, ten, eleven, twelve, thirteen, fourteen, fifteen, sixteen, seventeen, eighteen, nineteen, twenty, thirty,
    forty, fifty, sixty, seventy, eighty, ninety, many, dozen, a dozen"""
LIKE_NUMBERS = {  # counts go to six
    "three": f"{FEW}, few, a group of, group of",
    "six": f"""{MORE}, {", ".join(map(str, [*range(7, 101), *range(200, 1001, 100)]))}, a dozen of, two dozen, thousand, thousands of,
        lots of, a lot of, loads of, bunch of, herd of, flock of, field of, swarm of, school of, pile of, stack of, row of, basket of,
        dozens of, hundreds of, hundred""",
}
for edit in ("{} of them", "{} of these", "make it {}"):
    for number, like in (("one", "1"), ("three", FEW), ("six", f"{MORE}, {', '.join(map(str, range(7, 21)))}, lots")):
        LIKE_EDITS[edit.format(number)] = ", ".join(map(edit.format, re.split(r",\s+", like)))
for number, like in (("one", "1"), ("two", "2"), ("three", f"3, {FEW}"), ("four", "4"), ("five", f"5, six, 6, {MORE}, {', '.join(map(str, range(7, 21)))}")):
    LIKE_EDITS[f"add {number} more ..."] = ", ".join(f"add {x} more ..." for x in re.split(r",\s+", like))
# Colours of backgrounds alone. Before a thing they are read as a colour that things have.
BEFORE_THINGS = {
    "blue ...": "light blue, dark blue, navy",
    "green ...": "light green, dark green",
    "grey ...": "light grey",
    "purple ...": "lavender",
    "brown ...": "beige",
    "... above ...": "on",
    "... and ...": "in, of, to, into",
}
LIKE_COLOURED = {"tangerine": ["orange"]}  # "an orange", but not "an orange cat"
LIKE_SCALES = {"small": "miniature, mini", "big": "giant, gigantic, enormous"}
LIKE_STYLES = {  # what people call them
    "3d picture of": "3d render of, 3d model of, 3d rendering of, 3d illustration of",
    "line drawing of": "pencil sketch of, pencil drawing of, ink drawing of, black and white drawing of, doodle of",
    "flat picture of": "flat icon of, flat illustration of, vector illustration of",
    "cartoon drawing of": "cartoon illustration of, comic drawing of",
}
LIKE_JOINTS = {
    "above": "on top of, on the top of",
    "next to": "near, by, behind, in front of, close to, around, between",
    "and": "or, wearing, holding, having, riding, chasing, eating, drinking, playing, playing with, reading, kissing, watching",
}


# Plurals that captions of the training spell another way (data.plural), or not at all
PLURALS = """
avocado avocadoes, buffalo buffaloes, mango mangoes, mosquito mosquitoes, potato potatoes, superhero superheroes, tomato tomatoes,
tornado tornadoes, volcano volcanoes, calf calves, elf elves, loaf loaves, scarf scarves, wife wives, bus buses, minibus minibuses,
trolleybus trolleybuses, cactus cacti, hippopotamus hippos, octopus octopuses, virus viruses, walrus walruses, abacus abacuses,
goose geese, ox oxen, fireman firemen, merman mermen, policeman policemen, policewoman policewomen, snowman snowmen, fish fishes,
diplodocus diplodocuses, rhinoceros rhinos, lens lenses
""".strip()
PLURALS = dict(pair.split(" ") for pair in re.split(r",\s+", PLURALS))


def plurals_of(word: str) -> list:
    """As the captions of the training have it, and as people write it"""
    head = re.match(r"[^ ]+(?: (?!with |of |in |on |and )[^ ]+)*", word)[0]
    last = head.split(" ")[-1]
    usual = head[: len(head) - len(last)] + PLURALS[last] + word[len(head) :] if last in PLURALS else None
    return [data.plural(word)] + ([usual] if usual and usual != data.plural(word) else [])


def split(text: str) -> list:
    return [w for w in re.split(r"[,\s]*,[,\s]*|\s*\n\s*", text.strip()) if w]


def signs_of(codepoints: str) -> list:
    """The character of a thing without U+FE0F, which Lazuli ignores; [] if it has an ASCII character (keycaps)"""
    sign = "".join(chr(int(c, 16)) for c in codepoints.split("-")).replace("\ufe0f", "")
    return [] if any(c.isascii() for c in sign) else [sign]


def main():
    source, target = pathlib.Path(sys.argv[1]), sys.argv[2]
    with lzma.open(source / "emoji.jsonl.xz", "rt") as file:
        things = data.Words([{k: t[k] for k in ("codepoints", "name", "keywords")} for t in map(json.loads, file)])
    known = set(things.names) | {data.plural(n) for n in things.names} | set(GRAMMAR) | set(COLOURS) | set(data.PLACES)
    read_as, used = {}, set()
    for line in SYNONYMS:
        name, words = line.split(" = ")
        if name not in things.names:
            sys.exit(f"words.py: no thing is called '{name}'")
        read_as.setdefault(name, []).extend(split(words))
    for name, other in zip(things.names, things.other):
        read_as.setdefault(name, []).extend(w for w in other if w in NOUNS)
        used.update(other)
    if set(NOUNS) - used:
        sys.exit(f"words.py: not words of the training: {sorted(set(NOUNS) - used)}")

    meant = {}
    for name, words in read_as.items():
        for w in words:
            meant.setdefault(w, set()).add(name)
            for p in plurals_of(w):
                meant.setdefault(p, set()).add(name)
    twice = [w for words in read_as.values() for w in words if words.count(w) > 1]
    twice += [w for w, names in meant.items() if len(names) > 1 or w in split(FILLERS)]
    if twice:
        sys.exit(f"words.py: read in two ways: {twice}")

    lines = [HEAD, "# Things"]
    for name, keywords, codepoints in sorted(zip(things.names, things.keywords, (r["codepoints"] for r in things.rows))):
        words, plural = [w for w in read_as[name] if w not in known], data.plural(name)
        near = [k for k in keywords if re.fullmatch("[a-z][a-z -]{1,19}", k) and k not in known and k not in words]
        plurals = [p for w in [name, *words] for p in plurals_of(w) if p not in (w, plural, *known, *words)]
        plurals += [data.plural(w) for w in LIKE_COLOURED.get(name, [])]
        plurals = list(dict.fromkeys(p for p in plurals if p == plural or p not in meant or meant[p] == {name}))
        same = plural == name
        line = f"{name}, {plural}"
        other = words + (plurals if same else []) + signs_of(codepoints) + LIKE_COLOURED.get(name, [])
        line += " = " + ", ".join(other) if other else ""
        lines.append(line + (" ~ " + ", ".join(near) if near else ""))
        if plurals and not same:
            lines.append(f"{plural} = {', '.join(plurals)}")
    styles = sorted({w.lower() for _, words in data.STYLES.values() for w in words})
    lines += ["", "# Styles"] + [f"{s}{end}" for s in styles for end in (" style", "")]
    for kind in (f"{s} {what} of" for s in styles for what in ("picture", "drawing", "emoji")):
        lines.append(kind + (f" = {LIKE_STYLES[kind]}" if kind in LIKE_STYLES else ""))
    lines += ["", "# Colours of things and backgrounds"]
    for c in COLOURS:
        like = [f"{x} ..." for x in split(LIKE_COLOURS.get(c, ""))]
        lines.append(f"{c} ..." + (" = " + ", ".join(like) if like else ""))
    lines += ["", "# Places"] + list(data.PLACES)
    lines += ["", "# Said with these"] + ALONE + [f"... {w}" for w in ENDS]
    lines.append(", ".join(f"{w} ..." for w in COUNTS) + " = ...")
    lines += [f"{w} ... = " + ", ".join(f"{x} ..." for x in split(like)) for w, like in LIKE_NUMBERS.items()]
    for w in BEGINS:
        like = [f"{x} ..." for x in split(LIKE_SCALES.get(w, ""))]
        lines.append(f"{w} ..." + (" = " + ", ".join(like) if like else ""))
    for w in JOINTS:
        like = [f"... {x} ..." for x in split(LIKE_JOINTS.get(w, ""))]
        lines.append(f"... {w} ..." + (" = " + ", ".join(like) if like else ""))
    lines += ["", "# Read so before things alone"]
    for w, like in BEFORE_THINGS.items():
        lines.append(f"{w} = " + ", ".join(w.replace(re.sub(r"^\.\.\. | \.\.\.$", "", w), x) for x in split(like)))
    lines += ["", "# Said with a reference picture"] + [w if w in MAY_EDIT else f"{w} = $" for w in split(EDITS)]
    lines += [" = ".join(filter(None, [w, ", ".join(split(like) + ["$"] * (w not in MAY_EDIT))])) for w, like in LIKE_EDITS.items()]
    fillers = [f for f in split(FILLERS) if f not in known] + [f"{a}{m} of" for m in MEDIA for a in ("", "a ", "an ")[: 3 if m[0] in "aeiou" else 2]]
    lines += ["", "# Read as nothing"] + ["= " + ", ".join(fillers[i : i + 8]) for i in range(0, len(fillers), 8)]
    lines += ["= without ..., no ..., not ..., except ..., isn't ..., aren't ..., wasn't ..., doesn't ..., don't ..., never ..., nor ..., ... or ...", "= *"]
    pathlib.Path(target).write_text("\n".join(lines) + "\n")
    print(f"{len(things.names)} things, {sum(map(len, read_as.values()))} words read as others, {len(fillers)} as nothing")


if __name__ == "__main__":
    main()
