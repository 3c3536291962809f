"""Words of questions that say nothing about what to look for, by language.

Other stop words come from the package stopwordsiso. Its English list is left out: it has 1,298
words, "system" and "page" among them. Ours has what belongs to the grammar: articles, pronouns,
prepositions, conjunctions, auxiliary verbs and adverbs of degree.
"""

from __future__ import annotations

import re


def _listed(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text))


ENGLISH = _listed(
    """a about above across after again against all along also although am among an and any are
    around as at be because been before being below beside besides between beyond both but by
    can could despite did do does down during each either else every except few for from further
    had has have having he her here hers herself him himself his how i if in into is it its
    itself just me more most much must my myself neither no nor not now of off on once only or
    other our ours ourselves out over own same shall she should since so some such than that the
    their theirs them themselves then there these they this those though through to too toward
    towards under unless until up upon us versus very via was we were what when where whereas
    whether which while who whom whose why will with within without would yet you your yours
    yourself yourselves
    ain aren couldn didn doesn don hadn hasn haven isn ll mightn mustn needn re s shan shouldn t
    ve wasn weren wouldn"""  # parts of don't, we've and the like
)
# Words that keyword search uses, but that only match by chance.
COMMON_ENGLISH = _listed(
    """best better big deep doing far fast get good happen happened happening happens heavy high
    hot instead kind know large let like long many may might need needed needs often old one per
    please possible small soon sort tall use used using want wants was way ways wide wish yes"""
)
# Words that say what to do with a document, not what to look for in it.
GENERIC_WORDS = {
    "en": _listed(
        """answer answers author complete content contents describe description document documents
        exact exactly explain explanation file files find give introduction key list main mean
        meaning name overview page pages paper passage point points question quote read say says
        section show subject summarise summarize summary tell text thing things title topic topics
        word words write"""
    ),
    "de": _listed(
        """abschnitt antwort antworten autor bedeutet beschreibe beschreiben beschreibung datei
        dateien dokument dokumente dokuments erkläre erklären erklärung fasse finde frage
        gesamte geht gib handelt hauptpunkte inhalt inhalte kapitel liste nenne punkte sage sagt
        schreibe seite seiten steht stelle text texte textes thema themen titel unterlagen
        wesentliche wichtigsten wort worte zeige zusammen zusammenfassung überblick"""
    ),
    "fr": _listed(
        """auteur chapitre contenu décris décrire document documents donne dit explique expliquer
        explication fichier fichiers liste montre mots page pages parle passage points principal
        principaux question réponse résume résumer résumé section sujet texte titre thème trouve
        trouver écris"""
    ),
    "es": _listed(
        """archivo archivos autor capítulo contenido describe descripción documento documentos
        explica fichero lista muestra palabras página páginas pregunta puntos principales resume
        resumen respuesta sección tema temas texto trata título"""
    ),
    "it": _listed(
        """autore capitolo contenuto descrivi descrizione documento documenti domanda elenca file
        mostra pagina pagine parla parole punti principali riassumi riassunto risposta sezione
        spiega testo tratta titolo tema"""
    ),
    "pt": _listed(
        """arquivo arquivos autor capítulo conteúdo descreva descrição documento documentos
        explique ficheiro lista mostre página páginas palavras pergunta pontos principais resuma
        resumo resposta seção tema texto trata título"""
    ),
    "nl": _listed(
        """auteur beschrijf bestand document documenten gaat hoofdstuk inhoud leg lijst noem
        onderwerp pagina punten samenvatting samen tekst titel toon vat vraag woorden"""
    ),
    "ru": _listed(
        """автор вопрос глава документ документа документе документы главное кратко объясни опиши
        описание ответ перечисли покажи раздел расскажи содержание страница страницы суть текст
        текста тексте тема файл файла файле"""
    ),
    "zh": _listed(
        """文件 文档 文章 本文 全文 内容 主要 总结 概括 概述 摘要 介绍 说明 描述 解释 讲 主题 标题
        作者 列出 告诉 讲述 关于 谈"""
    ),
    "ja": _listed(
        """文書 文章 本文 ファイル ドキュメント 内容 要約 概要 説明 主題 題名 著者 まとめ 教え"""
    ),
}
QUESTION_WORDS = {
    "de": _listed(
        """beim bitte dürfen darf gibt gilt lange hoch viele wieviel wieviele welch wem wen wessen
        worin worüber worum woran wofür womit wodurch wozu möchte kannst sollte mal etwa"""
    ),
    "fr": _listed(
        """combien comment est faut il lequel laquelle peut peux puis pourrait quand quel quelle
        quels quelles qui quoi s t n y où doit dois"""
    ),
    "zh": _listed(
        """什么 什麼 为什么 怎么 怎样 怎么样 如何 哪里 哪儿 哪个 哪些 哪种 多少 多久 多长 多大 多高
        几个 几天 几次 是否 能否 可否 可以 能不能 是不是 有没有 需要 应该 应当 请问 请 谁 何时 吗 呢
        吧 啊 的 了 是 我 我们 你 您 他 她 它 这 那 这个 那个 这份 这篇 这些 那些 和 与 及 或 把 被
        时候 情况下"""
    ),
    "ja": _listed(
        """何 なに なん だれ 誰 いつ どこ どの どれ どう どうやって どのように どのくらい なぜ
        いくら いくつ です ます ですか ますか ください は が を に で と の も か へ から まで より
        する した して この その あの これ それ あれ ある いる こと もの 場合 とき"""
    ),
    "th": _listed(
        """อะไร ไหน ใคร เมื่อไร เมื่อไหร่ ทำไม อย่างไร เท่าไร เท่าไหร่ กี่ หรือไม่ ไหม คือ ที่ ของ และ ใน เป็น
        ได้ ให้ มี จะ ต้อง นี้ นั้น"""
    ),
}
