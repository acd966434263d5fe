"""The phrases by rule in Ukrainian, Czech, Romanian, Greek, Swedish, Danish and Norwegian.

Words are compared without case and accents.
"""

from __future__ import annotations

_UK_SEND = "надішл*|надсила*|відправ*|перешл*|переда*|додай*|додавай*|скопіюй*|встав*|включ*|прикріп*|завантаж*|вкаж*"
_CS_SEND = (
    "odešli*|pošli*|posílej*|zašli*|přepošli*|předej*|vlož*|přilož*|připoj*|zkopíruj*|nahraj*|přidej*|odesílej*|uveď*"
)
_RO_SEND = (
    "trimite*|trimiteți|transmite*|include*|includeți|copia*|copiaz*|adaug*|adăug*|atașa*|atașeaz*|pune"
    "|puneți|încarc*"
    "|redirecțion*|expedia*|furniz*"
)
_EL_SEND = (
    "στείλ*|στέλν*|αποστείλ*|προώθησ*|προωθήσ*|συμπερίλαβ*|συμπεριλάβ*|αντίγραψ*|αντιγράψ*|επισύναψ*"
    "|επισυνάψ*|μετάδωσ*"
    "|ανέβασ*|ανεβάσ*|βάλε|βάλτε|πρόσθεσ*|προσθέσ*|δώσε|δώστε|παράδωσ*"
)
_SV_SEND = (
    "skicka*|sänd|sänds|vidarebefordra*|inkludera*|kopiera*|bifoga*|klistra*|lägg|ladda|överför*|ange|skriv|lämna"
)
_DA_SEND = "send|sendes|videresend*|inkluder*|kopier*|vedhæft*|indsæt*|læg|upload*|overfør*|angiv|skriv|tilføj*|medtag*"
_NO_SEND = "send|sendes|videresend*|inkluder*|kopier*|legg|vedlegg*|lim|last|overfør*|angi|skriv|gi|ta_med"

EUROPEAN: dict[str, dict[str, tuple[str, ...]]] = {
    "uk": {
        "instructions_overridden": (
            "ігнору*|проігнору*|забудь*|відкинь*|обійди*|знехту*|не_зважай* ~4 попередн*|раніш*|систем*"
            "|вищевказан*|минул*|всі"
            "|усі ~3 інструкц*|вказів*|правил*|настанов*|команд*",
            "попередн*|раніш*|систем* ~2 інструкц*|вказів*|правил*|настанов* ~5 недійсн*|скасован*|не_діють|втратил*",
        ),
        "priority_claimed": (
            "перед|перш_ніж|до ~5 будь|кожн*|інш*|всіма|усіма ~4 інструмент*|відповід*|функці*",
            "цей_інструмент ~3 завжди|повинен|має|спочатку|першим",
            "викли*|запускай*|використов* ~4 першим|спочатку ~4 інструмент*|інш*",
        ),
        "secrecy_asked": (
            "не|ніколи|без ~3 кажи*|говор*|повідомля*|згадуй*|згадува*|показуй*|розкрива*|інформу*"
            "|розповіда*|відома ~4 користувач*",
            "не|ніколи ~2 згадуй*|згадува*|розкрива*|повідомля* ~3 це*|про_це|інструкц*",
            "щоб ~2 користувач* ~2 не ~2 дізна*|поміт*|побач*|знав",
            f"таємно|непомітно|приховано|тихо|потай ~5 {_UK_SEND}|прочита*|виклик*",
        ),
        "conversation_collected": (
            f"{_UK_SEND} ~4 всю|увесь|весь|повн*|цілу|історі* ~4 розмов*|діалог*|листуван*|бесід*|чат*",
            f"{_UK_SEND} ~4 системн* ~1 промпт*|підказ*|інструкц*|повідомлен*",
        ),
        "data_sent": (f"{_UK_SEND} ~10 {{address}}",),
        "secret_read_asked": (
            f"прочита*|відкрий*|зчита*|{_UK_SEND} ~7 {{secret_file}}",
            "вміст* ~4 {secret_file}",
            f"прочита*|{_UK_SEND} ~5 парол*|ключ|ключі|токен*|секрет* ~4 користувач*|ssh|у|в|на",
        ),
        "approval_bypassed": (
            "без|не|ніколи ~3 пит*|запиту*|чекай*|підтверджен*|дозвол*|згод* ~5 підтверджен*|дозвол*|згод*|користувач*",
        ),
    },
    "cs": {
        "instructions_overridden": (
            "ignoruj*|zapomeň*|zapomen*|přehlížej*|obejdi*|nedbej*|neřiď* ~4 předchoz*|dřívějš*|předešl*"
            "|systémov*|uveden*|původn* ~3"
            " pokyn*|instrukc*|příkaz*|pravidl*|zásad*",
            "předchoz*|dřívějš*|systémov* ~2 pokyn*|instrukc*|pravidl* ~5 neplat*|zrušen*|ignoruj*",
        ),
        "priority_claimed": (
            "před|než ~5 jakýmkoli*|jakéhokoli*|jakýkoli*|každ*|jin*|ostatn* ~4 nástroj*|odpověd*|funkc*",
            "tento_nástroj ~3 vždy|musí|nejprve|jako_první",
        ),
        "secrecy_asked": (
            "neříkej*|nesděluj*|nezmiňuj*|neinformuj*|neukazuj*|neprozrazuj*|neoznamuj* ~6 uživatel*|to|tom"
            "|tento|tuto|nic",
            "uživatel* ~4 neříkej*|nesděluj*|nezmiňuj*|neinformuj*|neukazuj*|neprozrazuj*|neoznamuj*|nesmí|nedozv*",
            "bez ~1 vědomí ~2 uživatel*",
            f"tajně|potají|nenápadně|skrytě|potichu ~5 {_CS_SEND}|přečti*|čti|volej",
        ),
        "conversation_collected": (
            f"{_CS_SEND} ~4 cel*|kompletn*|úpln*|histori*|veškerou ~4 konverzac*|rozhovor*|chat*|komunikac*",
            f"{_CS_SEND} ~4 systémov* ~1 prompt*|pokyn*|instrukc*|zpráv*",
        ),
        "data_sent": (f"{_CS_SEND} ~10 {{address}}",),
        "secret_read_asked": (
            f"přečti*|čti|načti*|otevři*|{_CS_SEND} ~7 {{secret_file}}",
            "obsah* ~4 {secret_file}",
            f"přečti*|{_CS_SEND} ~5 heslo|hesla|klíč|klíče|tajemství|přihlašovací",
        ),
        "approval_bypassed": ("bez|neptej*|nežádej*|nečekej* ~5 potvrzen*|souhlas*|svolen*|schválen*",),
    },
    "ro": {
        "instructions_overridden": (
            "ignor*|uit*|neglij*|nesocot*|ocol* ~4 instrucțiun*|reguli*|regul*|directiv*|indicați* ~3"
            " anterio*|preceden*|de_sus"
            "|sistem*|inițial*|prealabil*",
            "ignor*|uit* ~3 anterio*|preceden* ~1 instrucțiun*|reguli|indicați*",
        ),
        "priority_claimed": (
            "înainte ~4 oricăr*|orice|fiecăr*|alt|altă|alte|altor ~3 instrument*|unelt*|răspuns*|apel*|funcți*",
            "acest_instrument|această_unealtă ~3 trebuie|mereu|întotdeauna|primul|prima",
        ),
        "secrecy_asked": (
            "nu|niciodată|fără ~3 spun*|menționa*|inform*|dezvălu*|arăta*|arată|comunica*|anunț*|divulg* ~6"
            " utilizator*",
            "nu|niciodată ~2 menționa*|dezvălu*|divulg* ~3 acest|aceasta|asta|nimic|instrucțiun*",
            "fără_ca ~2 utilizator* ~3 știe|afle|observe|vadă|să",
            f"pe_ascuns|în_secret|discret|pe_furiș|în_tăcere ~5 {_RO_SEND}|citeș*|citi*",
            f"{_RO_SEND}|citeș*|citi* ~6 pe_ascuns|în_secret|pe_furiș|în_tăcere",
        ),
        "conversation_collected": (
            f"{_RO_SEND} ~4 toat*|întreag*|complet*|istoric*|integral* ~4 conversați*|chat*|discuți*|dialog*|mesaj*",
            f"{_RO_SEND} ~4 promptul_de_sistem|prompt_de_sistem|mesajul_de_sistem|instrucțiunile_de_sistem",
        ),
        "data_sent": (f"{_RO_SEND} ~10 {{address}}",),
        "secret_read_asked": (
            f"citeș*|citi*|deschid*|{_RO_SEND} ~7 {{secret_file}}",
            "conținut* ~4 {secret_file}",
            f"citeș*|citi*|{_RO_SEND} ~5 parol*|cheia_privată|cheile_private|cheia_ssh|credențial*|secretele",
        ),
        "approval_bypassed": (
            "fără|nu|niciodată ~3 cer*|solicit*|aștept* ~5 confirmar*|permisiun*|aprobar*|acord*|consimțământ*",
        ),
    },
    "el": {
        "instructions_overridden": (
            "αγνόησ*|αγνοήσ*|ξέχασ*|ξεχάσ*|παράβλεψ*|παραβλέψ*|παράκαμψ*|παρακάμψ* ~4 προηγούμεν*|παραπάνω"
            "|αρχικ*|πρότερ*|συστήματος"
            " ~3 οδηγί*|εντολ*|κανόν*|υποδείξ*",
            "αγνόησ*|αγνοήσ*|ξέχασ* ~4 οδηγί*|εντολ*|κανόν* ~3 συστήματος|προηγούμεν*|παραπάνω",
        ),
        "priority_claimed": (
            "πριν|προτού ~6 οποιοδήποτε|κάθε|άλλο|άλλα|κανένα ~3 εργαλείο|εργαλεία|απάντησ*",
            "αυτό_το_εργαλείο ~3 πάντα|πρέπει|πρώτο|πρώτα",
        ),
        "secrecy_asked": (
            "μην|μη|ποτέ|χωρίς ~3 πεις|πείτε|αναφέρ*|ενημερώ*|αποκαλύ*|δείξ*|λες|ενημερωθεί ~6 χρήστη|χρήστες|χρήστης",
            "μην|μη|ποτέ ~2 αναφέρ*|αποκαλύ* ~3 αυτό|αυτή|τίποτα|οδηγί*",
            "χωρίς ~3 χρήστης ~3 ξέρει|γνωρίζει|μάθει|καταλάβει|αντιληφθεί",
            f"κρυφά|μυστικά|αθόρυβα|διακριτικά ~5 {_EL_SEND}|διάβασ*",
            f"{_EL_SEND}|διάβασ* ~6 κρυφά|μυστικά|αθόρυβα",
        ),
        "conversation_collected": (
            f"{_EL_SEND} ~4 όλη|ολόκληρη|πλήρ*|ιστορικό|σύνολο ~4 συνομιλί*|συζήτησ*|συνομιλιών|διάλογο*",
        ),
        "data_sent": (f"{_EL_SEND} ~10 {{address}}",),
        "secret_read_asked": (
            f"διάβασ*|άνοιξ*|{_EL_SEND} ~7 {{secret_file}}",
            "περιεχόμεν* ~4 {secret_file}",
            f"διάβασ*|{_EL_SEND} ~5 κωδικ*|κλειδί|κλειδιά|διαπιστευτήρια|μυστικά",
        ),
        "approval_bypassed": ("χωρίς|μην|μη ~3 ζητ*|περιμέν*|ρωτ* ~5 επιβεβαίωσ*|έγκρισ*|άδεια|συγκατάθεσ*",),
    },
    "sv": {
        "instructions_overridden": (
            "ignorera*|glöm|bortse|strunta|åsidosätt*|kringgå ~4 tidigare|föregående|ovanstående|systemets"
            "|ursprungliga ~2"
            " instruktion*|anvisning*|regler|riktlinjer|direktiv",
        ),
        "priority_claimed": (
            "innan|före ~5 andra|annat|något|alla|varje ~3 verktyg*|svar|anrop*|funktion*",
            "detta_verktyg|det_här_verktyget ~3 alltid|måste|först",
        ),
        "secrecy_asked": (
            "inte|aldrig|utan ~4 säg*|berätta*|nämn*|informera*|visa|avslöja*|meddela*|veta|vetskap ~5 användare*",
            "berätta|nämn|säg|visa|informera|avslöja|meddela ~5 användare* ~4 inte|aldrig|inget",
            "nämn|avslöja|berätta ~1 inte|aldrig ~2 detta|det|den|steget",
            "berätta|nämn|säg|visa|informera|avslöja|meddela ~1 inte|aldrig ~5 användare*",
            f"i_hemlighet|i_smyg|diskret|obemärkt ~5 {_SV_SEND}|läs",
            f"{_SV_SEND}|läs ~6 i_hemlighet|i_smyg|obemärkt|utan_att_användaren",
        ),
        "conversation_collected": (
            f"{_SV_SEND} ~4 hela|fullständig*|komplett* ~3 konversation*|samtal*|chatt*|dialog*|historik*",
        ),
        "data_sent": (f"{_SV_SEND} ~10 {{address}}",),
        "secret_read_asked": (
            f"läs|öppna|hämta|{_SV_SEND} ~7 {{secret_file}}",
            "innehåll* ~4 {secret_file}",
            f"läs|{_SV_SEND} ~5 lösenord*|hemligheter*|privata_nyckel*|nycklar*|inloggningsuppgift*",
        ),
        "approval_bypassed": (
            "utan|inte|aldrig ~4 fråga*|be|vänta*|begär* ~5 bekräftelse|godkännande|tillåtelse|samtycke",
        ),
    },
    "da": {
        "instructions_overridden": (
            "ignorer*|glem|se_bort_fra|tilsidesæt*|omgå ~4 tidligere|foregående|ovenstående|systemets"
            "|oprindelige ~2"
            " instruktion*|anvisning*|regler|retningslinjer|instruks*",
        ),
        "priority_claimed": (
            "før|inden ~5 andre|andet|noget|alle|hvert|ethvert|hver ~3 værktøj*|svar|kald*|funktion*",
            "dette_værktøj ~3 altid|skal|først",
        ),
        "secrecy_asked": (
            "ikke|aldrig|uden ~4 fortæl*|sig|sige|nævn*|informer*|vis|vise|afslør*|vide|vidende|oplys* ~5 bruger*",
            "fortæl|nævn|sig|vis|informer|afslør|oplys ~5 bruger* ~4 ikke|aldrig|intet",
            "fortæl|nævn|sig|vis|informer|afslør|oplys ~1 ikke|aldrig ~4 bruger*|dette|det|trin*",
            f"hemmeligt|i_smug|diskret|ubemærket|i_det_skjulte ~5 {_DA_SEND}|læs",
            f"{_DA_SEND}|læs ~6 hemmeligt|i_smug|ubemærket|i_det_skjulte",
        ),
        "conversation_collected": (
            f"{_DA_SEND} ~4 hele|fuldstændig*|komplet* ~3 samtale*|samtalen|chat*|dialog*|historik*",
        ),
        "data_sent": (f"{_DA_SEND}|vedlæg* ~10 {{address}}",),
        "secret_read_asked": (
            f"læs|åbn|hent|{_DA_SEND} ~7 {{secret_file}}",
            "indhold* ~4 {secret_file}",
            f"læs|{_DA_SEND} ~5 adgangskode*|hemmeligheder*|private_nøgle*|nøgler*|loginoplysning*",
        ),
        "approval_bypassed": (
            "uden|ikke|aldrig ~4 spørg*|bed|bede|vent*|anmod* ~5 bekræftelse|godkendelse|tilladelse|samtykke",
        ),
    },
    "no": {
        "instructions_overridden": (
            "ignorer*|glem|se_bort_fra|overse|omgå|tilsidesett* ~4 tidligere|foregående|ovenstående"
            "|systemets|opprinnelige ~2"
            " instruksjon*|instruks*|anvisning*|regler|retningslinjer",
        ),
        "priority_claimed": (
            "før ~5 andre|annet|noe|alle|hvert|ethvert|hver ~3 verktøy*|svar|kall*|funksjon*",
            "dette_verktøyet ~3 alltid|må|skal|først",
        ),
        "secrecy_asked": (
            "ikke|aldri|uten ~4 fortell*|si|nevn*|informer*|vis|vise|avslør*|vite|viten ~5 bruker*",
            "fortell|nevn|si|vis|informer|avslør ~5 bruker* ~4 ikke|aldri|ingenting",
            f"hemmelig|i_skjul|i_smug|diskret|ubemerket|i_det_skjulte ~5 {_NO_SEND}|les",
            f"{_NO_SEND}|les ~6 i_skjul|i_smug|ubemerket|i_det_skjulte",
        ),
        "conversation_collected": (f"{_NO_SEND} ~4 hele|fullstendig*|komplett* ~3 samtale*|chat*|dialog*|historikk*",),
        "secret_read_asked": (
            f"les|åpne|hent|{_NO_SEND} ~7 {{secret_file}}",
            "innhold* ~4 {secret_file}",
            f"les|{_NO_SEND} ~5 passord*|hemmeligheter*|private_nøkkel*|nøkler*|innloggingsdetalj*",
        ),
        "approval_bypassed": ("uten|ikke|aldri ~4 spør*|be|vent* ~5 bekreftelse|godkjenning|tillatelse|samtykke",),
    },
}
"""Phrases by language and rule."""
