"""facts.py - what nano is taught by heart: capitals, opposites, and words to spell and copy."""

CAPITALS = dict(line.split(': ') for line in '''
Afghanistan: Kabul
Albania: Tirana
Algeria: Algiers
Andorra: Andorra la Vella
Angola: Luanda
Argentina: Buenos Aires
Armenia: Yerevan
Australia: Canberra
Austria: Vienna
Azerbaijan: Baku
Bahrain: Manama
Bangladesh: Dhaka
Barbados: Bridgetown
Belarus: Minsk
Belgium: Brussels
Belize: Belmopan
Bhutan: Thimphu
Bosnia: Sarajevo
Botswana: Gaborone
Brazil: Brasilia
Bulgaria: Sofia
Burundi: Gitega
Cambodia: Phnom Penh
Cameroon: Yaounde
Canada: Ottawa
Chad: Ndjamena
Chile: Santiago
China: Beijing
Colombia: Bogota
Comoros: Moroni
Croatia: Zagreb
Cuba: Havana
Cyprus: Nicosia
Denmark: Copenhagen
Dominica: Roseau
Ecuador: Quito
Egypt: Cairo
Eritrea: Asmara
Estonia: Tallinn
Eswatini: Mbabane
Ethiopia: Addis Ababa
Fiji: Suva
Finland: Helsinki
France: Paris
Gabon: Libreville
Gambia: Banjul
Georgia: Tbilisi
Germany: Berlin
Ghana: Accra
Greece: Athens
Grenada: Saint George
Guinea: Conakry
Guyana: Georgetown
Haiti: Port-au-Prince
Honduras: Tegucigalpa
Hungary: Budapest
Iceland: Reykjavik
India: New Delhi
Indonesia: Jakarta
Iran: Tehran
Iraq: Baghdad
Ireland: Dublin
Israel: Jerusalem
Italy: Rome
Jamaica: Kingston
Japan: Tokyo
Jordan: Amman
Kazakhstan: Astana
Kenya: Nairobi
Kiribati: Tarawa
Kosovo: Pristina
Kyrgyzstan: Bishkek
Laos: Vientiane
Latvia: Riga
Lebanon: Beirut
Lesotho: Maseru
Liberia: Monrovia
Libya: Tripoli
Liechtenstein: Vaduz
Lithuania: Vilnius
Madagascar: Antananarivo
Malawi: Lilongwe
Malaysia: Kuala Lumpur
Maldives: Male
Mali: Bamako
Malta: Valletta
Mauritania: Nouakchott
Mauritius: Port Louis
Moldova: Chisinau
Mongolia: Ulaanbaatar
Montenegro: Podgorica
Morocco: Rabat
Mozambique: Maputo
Myanmar: Naypyidaw
Namibia: Windhoek
Nauru: Yaren
Nepal: Kathmandu
New Zealand: Wellington
Nicaragua: Managua
Niger: Niamey
Nigeria: Abuja
North Korea: Pyongyang
Norway: Oslo
Oman: Muscat
Pakistan: Islamabad
Palau: Ngerulmud
Paraguay: Asuncion
Peru: Lima
Poland: Warsaw
Portugal: Lisbon
Qatar: Doha
Romania: Bucharest
Russia: Moscow
Rwanda: Kigali
Samoa: Apia
Saudi Arabia: Riyadh
Senegal: Dakar
Serbia: Belgrade
Seychelles: Victoria
Sierra Leone: Freetown
Slovakia: Bratislava
Slovenia: Ljubljana
Somalia: Mogadishu
South Korea: Seoul
Spain: Madrid
Sudan: Khartoum
Suriname: Paramaribo
Sweden: Stockholm
Switzerland: Bern
Syria: Damascus
Taiwan: Taipei
Tajikistan: Dushanbe
Tanzania: Dodoma
Thailand: Bangkok
Togo: Lome
Tonga: Nukualofa
Tunisia: Tunis
Turkey: Ankara
Turkmenistan: Ashgabat
Tuvalu: Funafuti
Uganda: Kampala
Ukraine: Kyiv
Uruguay: Montevideo
Uzbekistan: Tashkent
Vanuatu: Port Vila
Venezuela: Caracas
Vietnam: Hanoi
Yemen: Sanaa
Zambia: Lusaka
Zimbabwe: Harare
'''.strip().splitlines())

OPPOSITES = dict(pair.split('-') for pair in '''
hot-cold big-small tall-short fast-slow young-old light-dark rich-poor hard-soft wet-dry full-empty early-late open-closed
happy-sad strong-weak high-low near-far thick-thin clean-dirty loud-quiet true-false left-right up-down in-out day-night
first-last good-bad right-wrong sweet-sour deep-shallow wide-narrow brave-afraid awake-asleep begin-end buy-sell give-take
love-hate push-pull win-lose yes-no black-white
'''.split())

WORDS = '''
apple anchor arrow basket beach bell bird blanket boat book bottle branch bread bridge brush bucket butter button cabin camel
candle carpet castle chair cherry circle cloud coffee copper corner cotton cradle crown desert diamond dinner doctor dolphin
donkey door dragon dream drum eagle engine falcon farmer feather fence field finger fire flag flower forest fox garden gate
giant ginger glass glove goat gold grape grass guitar hammer harbor hat hill honey horse house ice island jacket jewel jungle
kettle key king kitchen kite ladder lake lamp leaf lemon letter lion lizard magnet maple market melon mirror money monkey moon
morning mountain mouse music needle nest net ocean olive onion orange oven owl paint palace paper parrot pencil pepper piano
pillow pilot pirate planet plate pocket pony potato prince puzzle queen rabbit radio rain ribbon river road robot rocket roof
rope rose sailor salad salt sand school shadow sheep shell ship shoe silver sister snow soap song spider spoon spring square
star station stone storm street sugar summer sun table tail teacher temple tent thunder tiger tomato tower train tree tulip
tunnel turtle uncle valley velvet village violin wagon wall water whale wheat wheel whistle wind window winter wizard wolf
yellow zebra
'''.split()

NAMES = '''
Ada Ben Clara David Emma Felix Grace Henry Ida Jack Kate Leo Maria Nina Oscar Paul Rosa Sam Tom Vera Will Zoe Anna Bruno Carl
Dora Eva Frank Greta Hugo Iris Jonas Lena Max Nora Otto Peter Ruth Simon Tina
'''.split()

DAYS = 'Monday Tuesday Wednesday Thursday Friday Saturday Sunday'.split()
MONTHS = 'January February March April May June July August September October November December'.split()
