"""The most frequent function words of languages in Latin letters, by which these are known."""

from __future__ import annotations

FUNCTION_WORDS = {
    "en": "the of and to in a is that for it was on with as be by at this from are or an"
    " not have his but had which they you were her she he all their there been has"
    " when who will more if no we i my so what would",
    "de": "der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als"
    " auch es an werden aus er hat dass sie nach wird bei einer um am sind noch wie"
    " einem über einen so zum war haben nur oder aber vor zur bis mehr durch ich",
    "fr": "de la le et les des en un du une que est pour qui dans a par plus pas au sur ne"
    " se ce il sont la avec son aux d l ou cette elle ses mais été nous on leur y deux"
    " comme fait je vous ont était même si",
    "es": "de la que el en y a los se del las un por con no una su para es al lo como más o"
    " pero sus le ha me si sin sobre este ya entre cuando todo esta ser son dos"
    " también fue había era muy años hasta desde está",
    "it": "di e il la che in a per un è del una i non con le da si al sono dei nel come"
    " della gli lo alla più anche delle ma ha o dal su se nella questo ed suo era"
    " essere loro ai sua degli ci stato tra",
    "pt": "de a o que e do da em um para é com não uma os no se na por mais as dos como mas"
    " foi ao ele das tem à seu sua ou ser quando muito há nos já está eu também só"
    " pelo pela até isso ela entre era depois",
    "nl": "de van het een en in is dat op te zijn met voor niet die aan er om ook als maar"
    " bij door nog hij uit over naar of worden heeft dan werd wordt tot deze ze je was"
    " meer had geen kan wat hebben na zo ik",
    "sv": "och i att det som en på är av för med den till inte har de om ett han men var"
    " jag från vi så kan när eller man ut sig efter hade nu hon vid sin upp också än"
    " över där vara ska detta mot",
    "pl": "w i na z się nie do to że jest o a od po przez jak za co jego dla ale przy oraz"
    " są tym tak był ich ze który czy go być tylko było lub już jej może także ma"
    " które roku jako bardzo ja",
    "tr": "ve bir bu da de için ile olarak çok daha gibi olan en ne sonra kadar ise var ama"
    " o her olduğu ya ki mi değil diye olduğunu ben tarafından onun içinde büyük iki"
    " göre bunu ancak yok",
    "vi": "và của là có được trong cho các không một người với những này đã khi từ để về"
    " đến năm tại vào ra như cũng còn nhiều theo nhưng bị hay thì sẽ trên đó nước sau",
    "id": "yang dan di dengan untuk dari pada dalam ini itu adalah tidak ke akan oleh juga"
    " sebagai telah atau karena ada bisa dapat saat mereka tersebut lebih para tahun"
    " sudah kami saya kata",
    "cs": "a v se na je že s z do o to i ve by k ale jako za jsou od po jeho byl pro tak"
    " nebo však který si už až není jsem při jen která byla také bylo podle ze před"
    " které ještě aby",
    "ro": "de și în a la cu o din pe că nu un pentru este care se mai au fost sau ca să al"
    " ale prin lui dar sunt după i ei fi această era acest sa fiind între către le"
    " cele cum",
}
