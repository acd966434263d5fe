"""The phrases by rule in German, French, Spanish, Portuguese, Italian, Dutch, Polish and
Turkish.

Words are compared without case and accents; what is written here stands without them too.
"""

from __future__ import annotations

_DE_SEND = (
    "ubergib|ubergebe|sende|schicke|leite|ubermittle|ubertrage|lade|senden|schicken|weiterleiten|"
    "ubermitteln|poste|hange|fuge"
    "|gib|kopiere"
)
_FR_SEND = (
    "envoie|envoyez|envoyer|transmets|transmettez|transmettre|inclus|incluez|inclure|copie|copiez|ajoute"
    "|ajoutez|joins|joignez|transferez|publie"
)
_ES_SEND = (
    "envia|envie|enviar|reenvia|reenvie|incluye|incluya|incluir|copia|copie|adjunta|adjunte|transmite|pasa"
    "|manda|sube|anade"
)
_PT_SEND = "envie|enviar|encaminhe|encaminhar|inclua|incluir|copie|anexe|transmita|mande|passe|poste|coloque"
_IT_SEND = "invia|inviare|inoltra|inoltrare|includi|includere|copia|allega|trasmetti|manda|passa|carica|inserisci"
_NL_SEND = "stuur|verstuur|verzend|zend|voeg|neem|kopieer|upload|geef|doorsturen|plak|plaats"

WESTERN: dict[str, dict[str, tuple[str, ...]]] = {
    "de": {
        "instructions_overridden": (
            "ignorier*|missachte*|vergiss|vergesst|vergessen|uberschreib*|umgehe*|verwirf ~4 vorherig*"
            "|vorig*|bisherig*|fruher*|obig*|system*|sicherheits* ~2 anweisung*|regel*|instruktion*"
            "|vorgabe*|prompt*|richtlinie*",
            "anweisung*|vorgaben|regeln ~3 ignorier*|missacht*|hinfallig|ausser_kraft|ungultig",
            "ignorier*|vergiss ~2 alles ~2 bisherige|vorherige|davor|zuvor|oben",
        ),
        "priority_claimed": (
            "bevor ~4 andere*|jede*|irgendein* ~2 werkzeug*|tool|tools|funktion*",
            "vor ~3 jede*|allen ~3 werkzeug*|tool|tools|toolaufruf|aufruf|antwort",
            "dieses_werkzeug|dieses_tool ~3 immer|stets|zuerst|muss ~4 zuerst|aufgerufen|verwend*|benutzt|vor",
            "hat|haben ~2 vorrang ~2 vor",
        ),
        "secrecy_asked": (
            "nicht|nie|niemals|keinesfalls|ohne ~4 benutzer*|nutzer*|anwender*|user ~5 sag*|erwahn*"
            "|mitteil*|informier*|verrat*|zeig*|wissen|merk*|bemerk*|zu_informieren|erfahr*",
            "sag*|erwahn*|verrat*|zeig*|informier*|teil* ~5 benutzer*|nutzer*|anwender* ~4 nicht|nichts|nie|niemals",
            "ohne_dass ~2 der|die ~1 benutzer*|nutzer*|anwender*",
            "heimlich|unbemerkt|verdeckt|stillschweigend ~5 send*|schick*|ubermittl*|weiter*|lies|lese|kopier*|aufruf*",
            "darf|soll|sollte ~5 nichts|nicht ~4 erfahren|wissen|merken|bemerken",
        ),
        "conversation_collected": (
            f"{_DE_SEND} ~4 gesamt*|ganz*|vollstandig*|komplett*|bisherig* ~2 gesprach*|chat*"
            f"|konversation*|unterhaltung|dialog*|verlauf|nachrichten",
            f"{_DE_SEND} ~5 systemprompt|system_prompt|gesprachsverlauf|chatverlauf|systemanweisung*",
            "gesamt*|ganz*|vollstandig*|komplett* ~2 gesprach*|chat*|konversation*|unterhaltung|verlauf"
            " ~8 ubergeben|senden|angeben|einfugen|ubermitteln|eintragen",
        ),
        "data_sent": (f"{_DE_SEND} ~10 {{address}}", "{address} ~4 senden|schicken|ubermitteln|weiterleiten"),
        "secret_read_asked": (
            "lies|lese|lesen|offne|gib|ubergib|kopiere|sende|schicke|fuge|nimm|hole ~7 {secret_file}",
            ("{secret_file} ~8 lesen|senden|ubergeben|einfugen|ubermitteln|angeben|kopieren|schicken|mitschicken"),
            "inhalt* ~4 {secret_file}",
            "lies|gib|sende|schicke|ubergib ~5 passwort*|passworter|zugangsdaten|schlussel|geheimnisse|ssh_schlussel",
        ),
        "approval_bypassed": (
            "ohne|nicht|nie ~3 bestatigung|zustimmung|erlaubnis|ruckfrage ~4 frag*|warte*|einhol*|bitt*",
        ),
        "model_commanded": ("wichtig|hinweis|anweisung* ~2 fur ~1 den|das|die|alle ~1 assistent*|ki|modell*|agent*",),
    },
    "fr": {
        "instructions_overridden": (
            "ignore*|oublie*|neglige*|contourne*|outrepasse* ~4 instruction*|consigne*|regle*|directive*"
            " ~3 precedent*|anterieur*|ci_dessus|initial*|systeme|securite|prealable*",
            "ignore*|oublie* ~3 precedent*|anterieur* ~1 instruction*|consigne*|regle*",
            "ne ~1 tenez|tiens ~3 compte ~4 instruction*|consigne*|regle*",
        ),
        "priority_claimed": (
            "avant ~4 tout|toute|chaque|autre|autres|n_importe ~3 outil*|appel*|reponse*",
            "cet_outil ~2 doit ~3 toujours|appele|utilise|premier|avant",
            "appele*|utilise*|employe* ~2 toujours ~2 cet_outil ~4 avant|premier|abord|lieu",
        ),
        "secrecy_asked": (
            "ne|n|sans|jamais ~3 dites|dis|dire|mentionne*|informe*|revele*|montre*|previen*|signale*"
            "|parle* ~6 utilisateur*",
            "ne|n ~2 mentionne*|revele*|divulgue* ~2 pas|jamais|rien",
            "sans|insu ~3 utilisateur*|que_l_utilisateur ~4 sache|voie|remarque|sen|s|informe",
            "a_l_insu ~2 utilisateur*",
            "discretement|secretement|silencieusement|en_secret ~4 envo*|transm*|copie*|lis*|lire",
            "envo*|transm*|copie*|lis|lisez|ajoute* ~6 discretement|secretement|silencieusement|en_secret|en_cachette",
        ),
        "conversation_collected": (
            f"{_FR_SEND} ~4 toute|totalite|integralite|entiere|complet|complete|ensemble|historique ~4"
            f" conversation*|discussion*|echange*|messages",
            f"{_FR_SEND} ~5 invite_systeme|prompt_systeme|instructions_systeme|historique",
        ),
        "data_sent": (f"{_FR_SEND} ~10 {{address}}",),
        "secret_read_asked": (
            "lis|lisez|lire|ouvre*|copie*|transmet*|inclu*|fourni*|envo*|passe* ~7 {secret_file}",
            "contenu* ~4 {secret_file}",
            "lis|lisez|inclu*|fourni*|envo* ~5 mots_de_passe|mot_de_passe|cle_privee|cles_privees"
            "|cle_ssh|identifiants_de_connexion|secrets",
        ),
        "approval_bypassed": ("sans|ne ~3 demande* ~5 confirmation|autorisation|permission|accord|approbation",),
        "model_commanded": ("important|instruction*|consigne* ~2 pour|a ~1 l|le|les ~1 assistant*|ia|modele*|agent*",),
    },
    "es": {
        "instructions_overridden": (
            "ignor*|olvid*|descart*|omit* ~4 instruccion*|regla*|directri*|indicacion* ~3 anterior*"
            "|previa*|previo*|sistema|seguridad|original*",
            "ignor*|olvid*|descart* ~3 anterior*|previa* ~1 instruccion*|regla*|indicacion*",
            "no ~1 hagas|haga ~2 caso ~4 instruccion*|regla*|indicacion*",
        ),
        "priority_claimed": (
            "antes ~3 cualquier|cada|toda|todas|otra|otras ~2 herramienta*|respuesta*|llamada*",
            "esta_herramienta ~2 debe|siempre ~4 primero|antes|siempre|lugar",
            "usa*|utilic*|llam*|invoc* ~1 siempre ~2 esta_herramienta ~4 antes|primero|lugar",
        ),
        "secrecy_asked": (
            "no|nunca|sin|jamas ~3 dig*|dec*|mencion*|inform*|revel*|muestr*|avis*|notific*|cuent* ~6 usuario*",
            "no|nunca ~2 mencion*|revel* ~3 esto|instruccion*|nada|este",
            "sin_que ~2 usuario* ~3 sepa|entere|note|vea|se",
            "silenciosamente|secretamente|en_secreto|discretamente|a_escondidas ~4 envi*|copi*|lee|lea|reenvi*",
            "envi*|copi*|lee|lea|reenvi*|adjunt* ~6 silenciosamente|secretamente|en_secreto|discretamente",
        ),
        "conversation_collected": (
            f"{_ES_SEND} ~4 toda|todo|completa|completo|entera|historial|integra ~4 conversacion*|chat"
            f"|mensajes|dialogo",
            (f"{_ES_SEND} ~5 prompt_del_sistema|mensaje_del_sistema|instrucciones_del_sistema|historial_del_chat"),
        ),
        "data_sent": (f"{_ES_SEND} ~10 {{address}}",),
        "secret_read_asked": (
            "lee|lea|leer|abre|abra|copi*|incluy*|pas*|envi*|adjunt*|proporcion* ~7 {secret_file}",
            "contenido* ~4 {secret_file}",
            (
                "lee|lea|incluy*|envi*|guarda|guarde ~5 contrasena*|clave_privada"
                "|claves_privadas|clave_ssh|credenciales|secretos"
            ),
        ),
        "approval_bypassed": ("sin|no|nunca ~3 pid*|solicit*|esper* ~5 confirmacion|permiso|aprobacion|autorizacion",),
        "model_commanded": (
            "importante|instruccion*|aviso|nota ~2 para ~1 el|la|los ~1 asistente*|ia|modelo*|agente*",
        ),
    },
    "pt": {
        "instructions_overridden": (
            "ignor*|esqueca*|desconsider*|descart* ~4 instruc*|regra*|diretriz*|orientac* ~3 anterior*"
            "|previa*|sistema|seguranca|acima",
            "ignor*|esqueca*|desconsider* ~3 anterior* ~1 instruc*|regra*",
        ),
        "priority_claimed": (
            "antes ~3 qualquer|cada|toda|todas|outra|outras ~2 ferramenta*|resposta*|chamada*",
            "esta_ferramenta ~2 deve|sempre ~4 primeiro|antes|sempre",
        ),
        "secrecy_asked": (
            ("nao|nunca|sem|jamais ~3 dig*|diz*|mencion*|inform*|revel*|mostr*|avis*|cont* ~6 usuario*|utilizador*"),
            "sem_que ~2 usuario*|utilizador* ~3 saiba|perceba|note|veja",
            "silenciosamente|secretamente|em_segredo|discretamente ~4 envi*|copi*|leia|encaminh*",
            "envi*|copi*|leia|encaminh* ~6 silenciosamente|secretamente|em_segredo|discretamente",
        ),
        "conversation_collected": (
            f"{_PT_SEND} ~4 toda|todo|completa|completo|inteira|historico|integra ~4 conversa*|chat|mensagens",
            f"{_PT_SEND} ~5 prompt_do_sistema|mensagem_do_sistema|instrucoes_do_sistema|historico_da_conversa",
        ),
        "data_sent": (f"{_PT_SEND} ~10 {{address}}",),
        "secret_read_asked": (
            "leia|ler|abra|copie|inclua|passe|envie|forneca|anexe|coloque ~7 {secret_file}",
            "conteudo* ~4 {secret_file}",
            "leia|inclua|envie|passe ~5 senha*|chave_privada|chaves_privadas|chave_ssh|credenciais|segredos",
        ),
        "approval_bypassed": (
            "sem|nao|nunca ~3 pec*|pedir|solicit*|esper* ~5 confirmacao|permissao|aprovacao|autorizacao",
        ),
    },
    "it": {
        "instructions_overridden": (
            "ignora*|dimentica*|trascura*|scarta* ~4 istruzion*|regol*|direttiv*|indicazion* ~3"
            " precedent*|sopra|sistema|sicurezza|originali",
            "ignora*|dimentica* ~3 precedenti ~1 istruzion*|regol*|indicazion*",
        ),
        "priority_claimed": (
            "prima ~3 qualsiasi|ogni|altro|altri|qualunque ~2 strumento|strumenti|risposta|chiamata",
            "questo_strumento ~2 deve|sempre|va ~4 prima|primo|sempre",
        ),
        "secrecy_asked": (
            "non|mai|senza ~3 dir*|menziona*|informa*|rivela*|mostra*|avvisa*|parla* ~6 utent*",
            "senza_che ~3 utent* ~3 sappia|accorga|veda|se|noti",
            "insaputa ~3 utent*",
            "di_nascosto|segretamente|silenziosamente|in_segreto ~4 invi*|copi*|legg*|inoltr*",
            "invi*|copi*|legg*|inoltr* ~6 di_nascosto|segretamente|silenziosamente|in_segreto",
        ),
        "conversation_collected": (
            f"{_IT_SEND} ~4 tutta|intera|completa|cronologia|intero ~4 conversazion*|chat|messaggi|dialogo",
            f"{_IT_SEND} ~5 prompt_di_sistema|messaggio_di_sistema|istruzioni_di_sistema",
        ),
        "data_sent": (f"{_IT_SEND} ~10 {{address}}",),
        "secret_read_asked": (
            "leggi|leggere|apri|copia|includi|passa|invia|fornisci|allega|inserisci ~7 {secret_file}",
            "contenuto* ~4 {secret_file}",
            ("leggi|includi|invia|passa ~5 password|chiave_privata|chiavi_private|chiave_ssh|credenziali|segreti"),
        ),
        "approval_bypassed": (
            "senza|non|mai ~3 chied*|attend*|richied* ~5 conferma|permesso|approvazione|autorizzazione",
        ),
    },
    "nl": {
        "instructions_overridden": (
            "negeer|vergeet|omzeil ~4 vorige|eerdere|voorgaande|bovenstaande|systeem*|oorspronkelijke ~2"
            " instructie*|regels|opdracht*|richtlijn*|aanwijzing*",
        ),
        "priority_claimed": (
            "voordat|voor ~5 andere|elke|ieder*|enig* ~2 tool|tools|gereedschap*|functie*|antwoord",
            "deze_tool ~2 moet|altijd ~4 eerst|altijd|voor",
        ),
        "secrecy_asked": (
            "niet|nooit|zonder|niets ~5 gebruiker* ~6 vertel*|zeg*|meld*|informeer*|weet|merkt|medeweten|weten",
            "vertel*|zeg|meld|noem|informeer|toon|laat ~5 gebruiker* ~4 niet|niets|nooit",
            "zonder ~1 dat ~2 gebruiker*",
            "stiekem|heimelijk|ongemerkt|stilletjes ~5 stuur*|verzend*|lees|kopieer*|voeg",
        ),
        "conversation_collected": (
            f"{_NL_SEND} ~4 hele|volledige|gehele|complete ~3 gesprek*|chat*|conversatie*",
            f"{_NL_SEND} ~5 systeemprompt|system_prompt|gespreksgeschiedenis|chatgeschiedenis",
        ),
        "data_sent": (f"{_NL_SEND} ~10 {{address}}",),
        "secret_read_asked": (
            "lees|open|kopieer|stuur|geef|voeg|neem|plak ~7 {secret_file}",
            "inhoud ~4 {secret_file}",
            "lees|stuur|geef ~5 wachtwoord*|geheimen|privesleutel*|ssh_sleutel*|inloggegevens",
        ),
        "approval_bypassed": (
            "zonder|niet|nooit ~4 vraag*|vragen|wacht* ~4 bevestiging|toestemming|goedkeuring",
            "zonder|vraag ~4 bevestiging|toestemming|goedkeuring ~3 te_vragen|niet|nooit",
        ),
    },
    "pl": {
        "instructions_overridden": (
            "zignoruj*|ignoruj*|zapomnij*|pomin* ~4 poprzedni*|wczesniejsz*|powyzsz*|systemow* ~2 "
            "instrukcj*|polecen*"
            "|zasad*|wytyczn*",
        ),
        "priority_claimed": ("przed ~4 jakimkolwiek|innym*|kazdym ~3 narzedzi*|odpowiedzi*",),
        "secrecy_asked": (
            "nie|nigdy|bez ~3 mow*|informuj*|wspomin*|ujawnia*|pokazuj*|wiedzy ~4 uzytkownik*",
            "potajemnie|dyskretnie|po_cichu ~4 wysl*|skopiuj*|przecz*|odczyt*",
        ),
        "conversation_collected": ("wysl*|dolacz*|przeka*|skopiuj* ~4 cala|cale|pelna|historie ~3 rozmow*|czat*",),
        "data_sent": ("wysl*|dolacz*|przeka*|skopiuj*|przesl* ~10 {address}",),
        "secret_read_asked": (
            "odczyt*|przecz*|dolacz*|wysl*|skopiuj* ~7 {secret_file}",
            "zawartos* ~4 {secret_file}",
        ),
    },
    "tr": {
        "instructions_overridden": (
            ("onceki|yukaridaki|sistem ~3 talimat*|yonerge*|kural*|komut* ~4 yok_say|goz_ardi|unut|yoksay|gormezden"),
        ),
        "priority_claimed": ("diger|herhangi|her ~4 arac* ~6 once",),
        "secrecy_asked": (
            "kullanici* ~3 soyleme*|bildirme*|bahsetme*|gosterme*|haber_verme*",
            "gizlice|sessizce ~5 gonder*|oku|kopyala*",
        ),
        "conversation_collected": ("konusma*|sohbet* ~3 tamam*|tum*|gecmis* ~6 gonder*|ekle*|aktar*|yaz",),
        "data_sent": ("{address} ~6 gonder*|ilet*|yukle*",),
        "secret_read_asked": ("{secret_file} ~8 oku*|icerig*|gonder*|ekle*",),
    },
}
"""Phrases by language and rule."""
