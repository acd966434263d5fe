"""The phrases by rule in Vietnamese, Indonesian, Thai, Persian and Hebrew.

Words are compared without case and marks. In Vietnamese each syllable counts as one word, in Thai each character;
in Hebrew and Persian what is written together with a word is part of it.
"""

from __future__ import annotations

_VI_SEND = "gửi|chuyển|đính_kèm|sao_chép|chép|tải|đưa|truyền|bao_gồm|thêm|dán|cung_cấp|điền|ghi"
_VI_USER = "người_dùng|người_sử_dụng|khách_hàng"
_ID_SEND = (
    "kirim|kirimkan|kirimlah|mengirim|teruskan|sertakan|salin|unggah|lampirkan|masukkan|tambahkan|tempelkan"
    "|berikan"
    "|bagikan|isikan|sampaikan|tuliskan"
)
_TH_SEND = "ส่ง|แนบ|คัดลอก|อัปโหลด|อัพโหลด|ใส่|รวม|เพิ่ม|ระบุ|วาง|โพสต์"
_TH_NOT = "อย่า|ห้าม|ไม่ต้อง|ไม่ควร|โดยไม่|มิให้|ไม่ให้"
_FA_SEND = (
    "بفرست|بفرستید|ارسال|فوروارد|ضمیمه|کپی|پیوست|قرار|اضافه|آپلود|بارگذاری|بگذار|بگذارید|منتقل|درج|شامل|بنویس|بنویسید"
)
_HE_SEND = (
    "שלח|שלחו|שלחי|לשלוח|ושלח|העבר|העבירו|להעביר|והעבר|צרף|צרפו|לצרף|וצרף|העתק|העתיקו|להעתיק|והעתק|כלול"
    "|כללו|לכלול|וכלול"
    "|הוסף|הוסיפו|להוסיף|והוסף|העלה|העלו|הדבק|הכנס|הכניסו|ומסור|מסור|רשום|ציין"
)
_HE_USER = "למשתמש|המשתמש|משתמש|מהמשתמש|למשתמשים|המשתמשים|המשתמשת|מהמשתמשים|שהמשתמש|ללקוח|הלקוח"

ASIAN: dict[str, dict[str, tuple[str, ...]]] = {
    "vi": {
        "instructions_overridden": (
            "bỏ_qua|phớt_lờ|quên|không_tuân_theo|lờ_đi|ghi_đè|gạt_bỏ ~5 hướng_dẫn|chỉ_dẫn|chỉ_thị|quy_tắc"
            "|lệnh|yêu_cầu ~3 trước"
            "|trước_đó|trước_đây|ở_trên|hệ_thống|ban_đầu|cũ",
        ),
        "priority_claimed": (
            "trước_khi|trước ~5 bất_kỳ|mọi|tất_cả|mỗi|các ~4 công_cụ|câu_trả_lời|hàm|chức_năng",
            "luôn|luôn_luôn|phải ~4 gọi|dùng|sử_dụng|chạy ~3 công_cụ_này ~4 trước|đầu_tiên",
            "công_cụ_này ~4 luôn|phải ~5 trước|đầu_tiên",
        ),
        "secrecy_asked": (
            f"không|đừng|chớ ~4 nói|báo|thông_báo|tiết_lộ|kể|đề_cập|cho|nhắc|hiển_thị ~5 {_VI_USER}",
            f"không_để|đừng_để|mà_không ~4 {_VI_USER} ~4 biết|thấy|nhận_ra|phát_hiện",
            "đừng|không|không_được ~2 đề_cập|tiết_lộ|nhắc ~4 điều_này|việc_này|bước_này|hướng_dẫn",
            f"âm_thầm|bí_mật|lén|lén_lút|lặng_lẽ ~4 {_VI_SEND}|đọc|gọi",
            f"{_VI_SEND}|đọc ~8 âm_thầm|bí_mật|lén|lén_lút|lặng_lẽ",
        ),
        "conversation_collected": (
            f"{_VI_SEND} ~4 toàn_bộ|tất_cả|đầy_đủ|lịch_sử|cả|nguyên_văn ~5 cuộc_trò_chuyện|trò_chuyện"
            f"|hội_thoại|đoạn_chat|tin_nhắn",
            f"{_VI_SEND} ~5 lời_nhắc_hệ_thống|prompt_hệ_thống|tin_nhắn_hệ_thống|chỉ_thị_hệ_thống",
        ),
        "data_sent": (f"{_VI_SEND} ~12 {{address}}",),
        "secret_read_asked": (
            f"đọc|mở|lấy|{_VI_SEND} ~8 {{secret_file}}",
            "nội_dung ~5 {secret_file}",
            f"đọc|lấy|{_VI_SEND} ~6 mật_khẩu|khóa_riêng|khóa_bí_mật|khoá_riêng|khóa_api|thông_tin_đăng_nhập",
        ),
        "approval_bypassed": (
            "không|đừng|mà_không ~4 hỏi|chờ|xin|yêu_cầu|cần ~6 xác_nhận|sự_đồng_ý|phép|phê_duyệt|cho_phép",
        ),
    },
    "id": {
        "instructions_overridden": (
            "abaikan|lupakan|hiraukan|kesampingkan|langgar ~4 instruksi|perintah|arahan|aturan|petunjuk"
            "|panduan ~3 sebelumnya"
            "|terdahulu|di_atas|sistem|awal|lama",
        ),
        "priority_claimed": (
            "sebelum ~4 alat|tool|fungsi|menjawab|jawaban ~3 lain|lainnya|apa_pun|apapun|manapun|pengguna",
            "selalu|harus|wajib ~3 panggil|gunakan|jalankan|pakai ~3 alat_ini|tool_ini ~5 dulu|dahulu|pertama|sebelum",
            "alat_ini|tool_ini ~3 harus|wajib|selalu ~5 pertama|dulu|dahulu|sebelum",
        ),
        "secrecy_asked": (
            "jangan|tanpa|tidak|dilarang ~4 beri|beritahu|memberitahu|katakan|sebutkan|menyebutkan"
            "|ungkapkan|tampilkan|laporkan"
            "|sampaikan|sepengetahuan|memberi ~5 pengguna|user|pemakai",
            "jangan ~1 sebutkan|ungkapkan|bocorkan|singgung ~3 ini|hal|langkah|instruksi",
            "agar|supaya|sehingga ~2 pengguna ~3 tidak|tak ~2 tahu|melihat|menyadari|mengetahui|curiga",
            f"diam_diam|secara_rahasia|sembunyi_sembunyi|secara_diam ~5 {_ID_SEND}|baca|panggil",
            f"{_ID_SEND}|baca ~7 diam_diam|secara_rahasia|sembunyi_sembunyi",
        ),
        "conversation_collected": (
            f"{_ID_SEND} ~4 seluruh|semua|lengkap|riwayat|keseluruhan|segenap ~3 percakapan|obrolan|dialog|chat",
            f"{_ID_SEND} ~3 percakapan|obrolan|chat ~2 lengkap|seluruhnya|sejauh_ini|ini",
            f"{_ID_SEND} ~4 prompt_sistem|pesan_sistem|instruksi_sistem|riwayat_percakapan|riwayat_obrolan",
        ),
        "data_sent": (f"{_ID_SEND} ~10 {{address}}",),
        "secret_read_asked": (
            f"baca|bacalah|buka|ambil|{_ID_SEND} ~7 {{secret_file}}",
            "isi|konten ~4 {secret_file}",
            f"baca|ambil|{_ID_SEND} ~5 kata_sandi|sandi|kunci_privat|kunci_pribadi|kunci_ssh|kredensial",
        ),
        "approval_bypassed": (
            "tanpa|jangan|tidak_perlu|tak_perlu ~3 minta|meminta|menunggu|tunggu|tanya|bertanya ~4"
            " konfirmasi|izin|persetujuan",
        ),
    },
    "th": {
        "instructions_overridden": (
            "ละเว้น|เพิกเฉย|ไม่สนใจ|ลืม|มองข้าม|ยกเลิก|อย่าทำตาม ~10 คำสั่ง|คำแนะนำ|กฎ|ข้อกำหนด|คำชี้แจง"
            " ~14 ก่อนหน้า|เดิม|ระบบ|ข้างต้น|ทั้งหมด",
        ),
        "priority_claimed": (
            "ก่อน ~12 เครื่องมืออื่น|ฟังก์ชันอื่น|เครื่องมือใด|ตอบ",
            "ต้อง|เสมอ ~12 เรียกใช้|ใช้|เรียก ~6 เครื่องมือนี้ ~16 ก่อน|เสมอ|เป็นอันดับแรก",
        ),
        "secrecy_asked": (
            f"{_TH_NOT} ~14 บอก|แจ้ง|เปิดเผย|แสดง|กล่าวถึง|พูดถึง|รู้|เห็น|ทราบ ~14 ผู้ใช้",
            f"{_TH_NOT} ~6 ผู้ใช้ ~8 รู้|ทราบ|เห็น|สังเกต",
            f"แอบ|อย่างลับ|เงียบๆ|ลับๆ ~10 {_TH_SEND}|อ่าน",
            f"{_TH_SEND} ~40 อย่างลับ|เงียบๆ|ลับๆ",
        ),
        "conversation_collected": (
            f"{_TH_SEND} ~16 บทสนทนา|การสนทนา|ประวัติการแชท|ประวัติแชท|ข้อความระบบ|พรอมต์ระบบ ~12 ทั้งหมด"
            f"|มาด้วย|ไปด้วย|นี้|ลงใน|ใน",
            f"{_TH_SEND} ~10 ประวัติ|ทั้งหมด ~8 สนทนา|แชท",
        ),
        "data_sent": (f"{_TH_SEND} ~50 {{address}}",),
        "secret_read_asked": (
            f"อ่าน|เปิด|{_TH_SEND} ~30 {{secret_file}}",
            "เนื้อหา ~16 {secret_file}",
            f"อ่าน|{_TH_SEND} ~14 รหัสผ่าน|กุญแจส่วนตัว|คีย์ส่วนตัว|คีย์ลับ",
        ),
        "approval_bypassed": (f"{_TH_NOT} ~14 ถาม|ขอ|รอ ~14 ยืนยัน|อนุญาต|อนุมัติ|ยินยอม",),
    },
    "fa": {
        "instructions_overridden": (
            "نادیده|فراموش|کنار|بی_توجه ~6 دستور*|دستورالعمل*|قوانین|راهنما* ~3 قبلی|پیشین|سیستم|بالا",
            "دستور*|دستورالعمل*|قوانین|راهنمایی* ~3 قبلی|پیشین|سیستم|بالا|پیش ~4 نادیده|فراموش|کنار|باطل|بی_اعتبار",
        ),
        "priority_claimed": (
            "قبل|پیش ~4 هر|همه|سایر|دیگر|ابزار ~4 ابزار*|پاسخ*|دیگر*|دیگری",
            "همیشه|باید ~4 این_ابزار ~5 اول|ابتدا|قبل|نخست",
            "این_ابزار ~4 همیشه|باید ~5 اول|ابتدا|قبل|نخست",
        ),
        "secrecy_asked": (
            "کاربر* ~6 نگو*|نگوی*|نده|ندهید|نشان_نده*|اطلاع_نده*|نباید|متوجه_نشو*|مطلع_نشو*|خبر_نده*|بی_خبر",
            "بدون ~4 اطلاع|آگاهی|دانستن|اینکه ~4 کاربر*",
            "به_کاربر ~6 نگو*|نده|ندهید|نکن|نکنید|نشود",
            f"مخفیانه|پنهانی|محرمانه|بی_صدا|یواشکی ~6 {_FA_SEND}|بخوان*",
        ),
        "conversation_collected": (
            f"کل|تمام|همه|کامل|تاریخچه ~3 گفتگو*|گفت_و_گو*|مکالمه*|چت|پیام* ~8 {_FA_SEND}",
            f"{_FA_SEND} ~6 کل|تمام|همه|کامل|تاریخچه ~3 گفتگو*|گفت_و_گو*|مکالمه*|چت",
        ),
        "data_sent": (f"{{address}} ~8 {_FA_SEND}", f"{_FA_SEND} ~10 {{address}}"),
        "secret_read_asked": (
            f"{{secret_file}} ~8 بخوان*|محتوا*|{_FA_SEND}",
            f"بخوان*|محتوا*|{_FA_SEND} ~7 {{secret_file}}",
            f"رمز*|گذرواژه*|کلید_خصوصی|کلیدهای_خصوصی|کلمه_عبور ~8 {_FA_SEND}",
        ),
        "approval_bypassed": ("بدون|نیازی|لازم ~4 تایید*|تأیید*|اجازه|رضایت|پرسیدن ~6 نیست|کاربر*|بگیر*|کن|نپرس*",),
    },
    "he": {
        "instructions_overridden": (
            "התעלם|התעלמו|התעלמי|להתעלם|והתעלם|שכח|שכחו|עקוף|זנח|בטל|אל_תציית ~5 הוראות|ההוראות|מההוראות"
            "|הנחיות|ההנחיות|מההנחיות"
            "|כללים|הכללים|מהכללים ~3 הקודמות|קודמות|הקודמים|המערכת|לעיל|המקוריות|מערכת",
        ),
        "priority_claimed": (
            "לפני ~5 כל|שימוש|כלי|כלים ~4 כלי|כלים|אחר|אחרים|תשובה",
            "תמיד|חובה|יש ~4 לקרוא|להשתמש|להפעיל|הפעל|השתמש ~4 בכלי_זה|בכלי_הזה|כלי_זה",
            "כלי_זה|הכלי_הזה ~4 תמיד|חייב|ראשון|קודם|תחילה",
        ),
        "secrecy_asked": (
            f"אל|ואל|בלי|לא|ולא|מבלי|אין ~3 תספר|תספרו|תגלה|תאמר|תגיד|תזכיר|תציג|תודיע|תעדכן|לספר|לגלות"
            f"|להודיע|ליידע|להזכיר"
            f"|לומר|לעדכן ~5 {_HE_USER}",
            f"ללא|בלי ~2 ידיעת|ידיעתו|ידיעה ~2 {_HE_USER}|של",
            f"{_HE_USER} ~4 לא|אינו ~3 ידע|יידע|ישים|צריך|יגלה|לדעת|יראה",
            f"בסתר|בחשאי|בשקט|בסודיות ~5 {_HE_SEND}|קרא",
            f"{_HE_SEND}|קרא ~6 בסתר|בחשאי|בסודיות",
        ),
        "conversation_collected": (f"{_HE_SEND} ~4 כל|מלוא|היסטוריית|תמלול|את ~3 השיחה|הצ_אט|ההתכתבות|הדיאלוג",),
        "data_sent": (f"{_HE_SEND} ~10 {{address}}",),
        "secret_read_asked": (
            f"קרא|קראו|פתח|לקרוא|{_HE_SEND} ~7 {{secret_file}}",
            "תוכן|התוכן ~4 {secret_file}",
            f"קרא|{_HE_SEND} ~5 סיסמאות|הסיסמאות|סיסמה|הסיסמה|מפתח|מפתחות|המפתחות|המפתח",
        ),
        "approval_bypassed": ("ללא|בלי|אל|אין ~3 תבקש|תמתין|לבקש|צורך|בקשת|להמתין ~4 אישור|רשות|הסכמה|אישורו",),
    },
}
"""Phrases by language and rule."""
